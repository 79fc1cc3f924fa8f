#include "scheduler/declarations.h"

#include <algorithm>
#include <utility>

namespace poseidon {

std::optional<NodeId> Declarations::AddModel(const NodeId& worker, int64_t iteration,
                                             std::string model) {
  declared_.insert(worker);
  if (worker.rank == 0) first_iteration_ = std::max<int64_t>(0, iteration);
  if (declared_.size() == 1) {
    model_ = std::move(model);
    return std::nullopt;
  }
  if (model == model_) return std::nullopt;
  return worker == *declared_.begin() ? *declared_.rbegin() : *declared_.begin();
}

void Declarations::AddLinks(const NodeId& worker, wire::LinkReport links) {
  links_[worker] = std::move(links);
}

bool Declarations::Has(const NodeId& worker, bool with_links) const {
  return declared_.contains(worker) && (!with_links || links_.contains(worker));
}

std::vector<wire::LinkReport> Declarations::links() const {
  std::vector<wire::LinkReport> reports;
  for (const auto& [worker, report] : links_) reports.push_back(report);
  return reports;
}

}  // namespace poseidon
