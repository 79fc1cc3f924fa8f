#include "scheduler/report/parameter_agreement.h"

#include <vector>

#include "core/text/listed.h"
#include "transport/membership/member.h"

namespace poseidon {

std::string DescribeParameterDifference(const WorkerReports& reports, const wire::View& view) {
  const wire::WorkerReport* first = nullptr;
  const auto name = [&view](const wire::WorkerReport& report) {
    return Describe(FindNode(view, {Role::kWorker, report.rank()})) + " has hash " +
           report.parameter_hash();
  };
  for (const auto& [rank, report] : reports) {
    if (report.parameter_hash().empty()) continue;
    if (first == nullptr) first = &report;
    if (report.parameter_hash() == first->parameter_hash()) continue;
    return "the workers ended with different parameters: " + name(*first) + ", " + name(report) +
           " (workers[] in summary.json has all). See that all nodes run the same version of the "
           "program, and that none loads or averages parameters before the end, as for a last test "
           "(with poseidon_torch: only after shutdown(), or in a copy of the model); under SFB, "
           "machines of different kinds can round differently, which policy ALL_PS avoids; else it "
           "is a bug to report";
  }
  return "";
}

std::string DescribeParameters(const WorkerReports& reports) {
  std::string hash;
  std::vector<int> without;
  for (const auto& [rank, report] : reports) {
    if (report.parameter_hash().empty()) {
      without.push_back(rank);
    } else {
      hash = report.parameter_hash();
    }
  }
  if (without.empty()) return "all workers ended with the same parameters (hash " + hash + ")";
  if (hash.empty())
    return "whether the workers' parameters are the same is not known: no hash given";
  return "the workers that gave a hash ended with the same parameters (hash " + hash +
         "); not given: worker " + Listed(without);
}

}  // namespace poseidon
