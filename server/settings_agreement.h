// SettingsAgreement: that all workers update a KV pair's parameters by the same numbers. Each says
// them with its gradient, as its program's parameter groups have them in that iteration.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/arithmetic/torch_update.h"

namespace poseidon {

// Not thread-safe: belongs to a KV pair's lane.
class SettingsAgreement {
 public:
  // What is to be updated, "layer fc1", and which of the program's groups its parameters are in.
  SettingsAgreement(std::string label, std::vector<int> numbers)
      : label_(std::move(label)), numbers_(std::move(numbers)) {}

  size_t groups() const { return numbers_.size(); }
  // What the worker of this rank says for the iteration that is gathered. Throws ConfigError, with
  // both ranks and numbers, if another has said otherwise.
  void Check(int64_t iteration, int rank, const std::vector<ParameterGroup>& said);

 private:
  std::string label_;
  std::vector<int> numbers_;
  int64_t iteration_ = -1;
  int first_rank_ = -1;
  std::vector<ParameterGroup> first_said_;
};

}  // namespace poseidon
