#include "scheduler/declarations.h"

#include <algorithm>
#include <utility>

namespace poseidon {

std::optional<NodeId> Declarations::AddModel(const NodeId& worker, wire::Declaration declaration) {
  inputs_[worker] = std::move(*declaration.mutable_inputs());
  if (inputs_.size() == 1) {
    model_ = std::move(*declaration.mutable_model());
    return std::nullopt;
  }
  if (declaration.model() == model_) return std::nullopt;
  return worker == inputs_.begin()->first ? inputs_.rbegin()->first : inputs_.begin()->first;
}

void Declarations::AddLinks(const NodeId& worker, wire::LinkReport links) {
  links_[worker] = std::move(links);
}

void Declarations::Forget(const NodeId& worker) {
  inputs_.erase(worker);
  links_.clear();  // all measure anew, for another machine may have the lost one's place
}

int64_t Declarations::first_iteration() const {
  const auto found = inputs_.find({Role::kWorker, 0});
  return found == inputs_.end() ? 0 : std::max<int64_t>(0, found->second.first_iteration());
}

bool Declarations::Has(const NodeId& worker, bool with_links) const {
  return inputs_.contains(worker) && (!with_links || links_.contains(worker));
}

std::vector<wire::LinkReport> Declarations::links() const {
  std::vector<wire::LinkReport> reports;
  for (const auto& [worker, report] : links_) reports.push_back(report);
  return reports;
}

}  // namespace poseidon
