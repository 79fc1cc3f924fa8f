#include "scheduler/declarations.h"

#include <algorithm>
#include <utility>

namespace poseidon {

std::optional<NodeId> Declarations::AddModel(const NodeId& worker, wire::Declaration declaration) {
  const wire::TrainingInputs& inputs = inputs_[worker] = std::move(*declaration.mutable_inputs());
  if (worker.rank == 0) first_iteration_ = std::max<int64_t>(0, inputs.first_iteration());
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

bool Declarations::Has(const NodeId& worker, bool with_links) const {
  return inputs_.contains(worker) && (!with_links || links_.contains(worker));
}

std::vector<wire::LinkReport> Declarations::links() const {
  std::vector<wire::LinkReport> reports;
  for (const auto& [worker, report] : links_) reports.push_back(report);
  return reports;
}

}  // namespace poseidon
