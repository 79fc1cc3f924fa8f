#include "scheduler/stall_reports.h"

#include <algorithm>
#include <iterator>

#include "transport/membership/member.h"

namespace poseidon {

void StallReports::Add(const NodeId& node, wire::Stalled stalled) {
  reports_.emplace_back(node, std::move(stalled));
}

bool StallReports::IsWaiting(const NodeId& node) const {
  return std::any_of(reports_.begin(), reports_.end(),
                     [&](const Report& report) { return report.first == node; });
}

std::vector<StallReports::Report> StallReports::Counting(
    const std::vector<NodeId>& training) const {
  std::vector<Report> counting;
  std::copy_if(reports_.begin(), reports_.end(), std::back_inserter(counting),
               [](const Report& report) { return !report.second.last_exchange(); });
  const bool all_wait = std::all_of(training.begin(), training.end(),
                                    [this](const NodeId& node) { return IsWaiting(node); });
  return counting.empty() && all_wait ? reports_ : counting;
}

std::optional<StallReports::Cause> StallReports::FindCause(
    const std::vector<NodeId>& training) const {
  const std::vector<Report> counting = Counting(training);
  if (counting.empty()) return std::nullopt;
  const auto names_a_cause = [this](const Report& report) {
    const auto& missing = report.second.missing();
    return std::any_of(missing.begin(), missing.end(),
                       [this](const wire::Node& node) { return !IsWaiting(IdOf(node)); });
  };
  auto report = std::find_if(counting.begin(), counting.end(), names_a_cause);
  const bool found = report != counting.end();
  if (!found) report = counting.begin();
  const auto& [node, stalled] = *report;
  Cause cause{.waiting = node, .waiting_for = stalled.waiting_for(), .missing = {}};
  for (const wire::Node& absent : stalled.missing()) {
    if (!found || !IsWaiting(IdOf(absent))) cause.missing.push_back(IdOf(absent));
  }
  return cause;
}

}  // namespace poseidon
