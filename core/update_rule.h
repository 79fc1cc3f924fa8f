// Caffe's solver updates as pure functions: learning-rate policies and the update of a blob.
//
// The server applies them to the KV pairs it owns, a worker to the layers that it updates itself
// (sufficient-factor broadcast). Both call Update(), so a layer's parameters do not depend on where
// they are updated.
//
// All functions are pure: any thread may call them on vectors that no other thread touches
// meanwhile.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace poseidon {

// A solver's fields that decide an update; names and meanings are Caffe's SolverParameter's.
struct UpdateRule {
  enum class Regularization { kL1, kL2 };

  std::string type = "SGD";         // Caffe's solver type
  float base_lr = 0.01F;            // learning rate before policy and multipliers
  std::string lr_policy = "fixed";  // fixed, step, exp, inv, multistep, poly, sigmoid
  float gamma = 0;                  // step, exp, inv, multistep, sigmoid
  float power = 0;                  // inv, poly
  int stepsize = 0;                 // step, sigmoid: iterations
  std::vector<int> stepvalue;       // multistep: iterations, ascending
  int64_t max_iter = 0;             // poly: iterations
  float momentum = 0;
  float weight_decay = 0;
  Regularization regularization = Regularization::kL2;
};

// What a blob multiplies the global values with (Caffe's ParamSpec).
struct Multipliers {
  float lr = 1;
  float decay = 1;
};

// Throws ConfigError if the rule can't work: unknown type or policy, a policy's field missing
// (stepsize 0 for "step"), stepvalue not ascending, momentum outside [0, 1), a negative or infinite
// number. Names the solver's field. Stricter than Caffe, which takes gamma or power 0 and then
// stops learning, or never lowers the rate, without a word.
void Validate(const UpdateRule& rule);

// The learning rate of iteration `iteration` (from 0), in double as the powers need it, rounded
// once to float. With F = floor and i the iteration, base_lr is multiplied with
//   fixed      1                           step     gamma ^ F(i / stepsize)
//   exp        gamma ^ i                   inv      (1 + gamma i) ^ -power
//   multistep  gamma ^ (stepvalues <= i)   poly     (1 - i / max_iter) ^ power, 0 after max_iter
//   sigmoid    1 / (1 + e ^ (-gamma (i - stepsize)))
// The rule must have passed Validate.
float LearningRate(const UpdateRule& rule, int64_t iteration);

// How many floats of optimiser state a parameter has under this rule (SGD: 1, the momentum).
int StatePerParameter(const UpdateRule& rule);

// One update of n parameters, in place:
//   g = gradient_sum * gradient_scale + decay * (parameter or its sign)
//   history = momentum * history + lr * g;  parameter -= history
// with lr = learning_rate * multipliers.lr, decay = weight_decay * multipliers.decay (Caffe's
// SGDSolver). `learning_rate` is LearningRate(rule, iteration); `gradient_scale` is 1 / workers.
// parameters and gradient_sum have the same length n; history holds StatePerParameter(rule) * n
// floats, zeros before the first update. The three must not overlap. Elements are independent, each
// operation is rounded to float once: updating a range in pieces gives the same bits as whole.
void Update(const UpdateRule& rule, float learning_rate, const Multipliers& multipliers,
            std::span<const float> gradient_sum, float gradient_scale, std::span<float> parameters,
            std::span<float> history);

}  // namespace poseidon
