// ParameterGroup: the numbers by which torch.optim.SGD or torch.optim.AdamW updates some of a
// model's parameters in one iteration. A plain value.
//
//   poseidon::ParameterGroup group{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true};
#pragma once

namespace poseidon {

// In double, as Python's numbers are: what is made of them is rounded to float once, as PyTorch
// does.
struct ParameterGroup {
  double learning_rate = 0;
  double weight_decay = 0;
  double momentum = 0;    // AdamW: the first of betas
  double momentum2 = 0;   // AdamW: the second of betas
  double dampening = 0;   // SGD
  double delta = 0;       // AdamW: eps
  bool nesterov = false;  // SGD
  bool maximize = false;

  bool operator==(const ParameterGroup&) const = default;
};

}  // namespace poseidon
