#include "server/settings_agreement.h"

#include <array>
#include <charconv>

#include "core/error.h"

namespace poseidon {
namespace {

// The first setting in which the groups differ, by PyTorch's name.
struct Difference {
  const char* setting = "";
  double first = 0;
  double second = 0;
};

// As Python prints it: no two numbers look the same.
std::string Shortest(double value) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return {text.data(), end};
}

Difference FirstDifference(const ParameterGroup& first, const ParameterGroup& second) {
  const Difference settings[] = {
      {"lr", first.learning_rate, second.learning_rate},
      {"weight_decay", first.weight_decay, second.weight_decay},
      {"momentum or betas[0]", first.momentum, second.momentum},
      {"betas[1]", first.momentum2, second.momentum2},
      {"dampening", first.dampening, second.dampening},
      {"eps", first.delta, second.delta},
      {"nesterov", first.nesterov ? 1.0 : 0.0, second.nesterov ? 1.0 : 0.0},
      {"maximize", first.maximize ? 1.0 : 0.0, second.maximize ? 1.0 : 0.0},
  };
  for (const Difference& setting : settings) {
    if (setting.first != setting.second) return setting;
  }
  return {};
}

}  // namespace

void SettingsAgreement::Check(int64_t iteration, int rank,
                              const std::vector<ParameterGroup>& said) {
  if (iteration != iteration_) {
    iteration_ = iteration;
    first_rank_ = rank;
    first_said_ = said;
    return;
  }
  for (size_t place = 0; place < said.size(); ++place) {
    if (said[place] == first_said_[place]) continue;
    const Difference difference = FirstDifference(first_said_[place], said[place]);
    throw ConfigError("workers do not agree how to update " + label_ + " in iteration " +
                      std::to_string(iteration) + ": parameter group " +
                      std::to_string(numbers_[place]) + " has " + difference.setting + " " +
                      Shortest(difference.first) + " on worker " + std::to_string(first_rank_) +
                      " and " + Shortest(difference.second) + " on worker " + std::to_string(rank) +
                      "; give all workers the same optimizer and the same schedule");
  }
}

}  // namespace poseidon
