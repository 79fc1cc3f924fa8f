// Solvers' updates as pure functions: Caffe's, with learning-rate policies, and torch.optim's
// (core/arithmetic/torch_update.h), whose numbers come with each iteration instead.
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

#include "core/arithmetic/torch_update.h"
#include "core/arithmetic/update_element.h"

namespace poseidon {

// A solver's fields that decide an update; names and meanings are Caffe's SolverParameter's.
struct UpdateRule {
  enum class Regularization { kL1, kL2 };

  // SGD, Nesterov, AdaGrad, RMSProp, AdaDelta, Adam; TorchSGD and TorchAdamW, which read no other
  // field, but UpdateStep.group; MeanGradient, which is always deferred and has no update of ours:
  // the training program does what it likes with the gradient.
  std::string type = "SGD";
  float base_lr = 0.01F;            // learning rate before policy and multipliers
  std::string lr_policy = "fixed";  // fixed, step, exp, inv, multistep, poly, sigmoid
  float gamma = 0;                  // step, exp, inv, multistep, sigmoid
  float power = 0;                  // inv, poly
  int stepsize = 0;                 // step, sigmoid: iterations
  std::vector<int> stepvalue;       // multistep: iterations, each a step (StepsTaken)
  int64_t max_iter = 0;             // poly: iterations
  float momentum = 0;        // not AdaGrad, RMSProp; AdaDelta: decay; Adam: the first moment's
  float momentum2 = 0.999F;  // Adam: decay of the second moment
  float rms_decay = 0.99F;   // RMSProp: decay of the mean square
  float delta = 1e-8F;       // AdaGrad, RMSProp, AdaDelta, Adam: keeps divisors above 0
  float weight_decay = 0;
  Regularization regularization = Regularization::kL2;
  // Update() leaves the parameters as they are and puts the mean gradient behind each one's state;
  // the training program makes the update, by UpdateDeferred(), when it has seen what it needs
  // (the norm of all gradients, for one).
  bool deferred = false;
  // Gradual warm-up (Goyal et al., arXiv 1706.02677, section 2.2): before iteration
  // warmup_iterations the rate is linear between warmup_base_lr and the policy's.
  int64_t warmup_iterations = 0;
  float warmup_base_lr = 0;
  // SGD, Nesterov: state of the iteration before is multiplied with the ratio of its rate to the
  // present one (ibid., section 3, remark 2).
  bool momentum_correction = false;
  // What the rate, after warm-up, is multiplied with from an iteration on, until the next of these;
  // by ascending iterations. Before the first: 1.
  struct RateScale {
    int64_t start_iteration = 0;
    float scale = 1;
  };
  std::vector<RateScale> rate_scales;
};

// What a blob multiplies the global values with (Caffe's ParamSpec).
struct Multipliers {
  float lr = 1;
  float decay = 1;
};

// Throws ConfigError if the rule can't work: unknown type or policy, a policy's field missing
// (stepsize 0 for "step"), a negative stepvalue, momentum or another decay outside [0, 1),
// momentum for a type that has none, delta not above 0 where the type divides by it, a negative or
// infinite number. Names the solver's field; fields that the type or policy does not read are not
// checked. Stricter than Caffe, which takes, without a word, delta 0 and then makes parameters NaN,
// and gamma 0: "step", "exp" and "multistep" then stop learning, and "inv" never lowers the rate.
void Validate(const UpdateRule& rule);

// How many steps of lr_policy "multistep" have been taken in iteration `iteration`. As in Caffe, a
// step waits for those before it and an iteration takes at most one. So where the values ascend it
// is how many are at most `iteration`; of two that are equal the second is taken an iteration
// later, and one that is less than another before it comes right behind that.
int StepsTaken(const std::vector<int>& stepvalue, int64_t iteration);

// The learning rate of iteration `iteration` (from 0), in double as the powers need it, rounded
// once to float. With F = floor and i the iteration, base_lr is multiplied, after warm-up, with
//   fixed      1                           step     gamma ^ F(i / stepsize)
//   exp        gamma ^ i                   inv      (1 + gamma i) ^ -power
//   multistep  gamma ^ StepsTaken(i)       poly     (1 - i / max_iter) ^ power, 0 after max_iter
//   sigmoid    1 / (1 + e ^ (-gamma (i - stepsize)))
// and with the one of rate_scales that holds at i.
// The rule must have passed Validate.
float LearningRate(const UpdateRule& rule, int64_t iteration);

// What the rate of iteration `iteration` is to be multiplied with where the optimizer's state is of
// `updates` updates and not of `iteration`, as in asynchronous training, whose workers' gradients
// are updates of their own. Other than 1 for type Adam, whose bias correction counts updates (t of
// algorithm 1 of Kingma and Ba, 2015).
double RateForUpdates(const UpdateRule& rule, int64_t iteration, int64_t updates);

// How many floats of optimizer state a parameter has under this rule: 1 (SGD, Nesterov, TorchSGD:
// the momentum; AdaGrad, RMSProp: the gradients' squares), or 2 (AdaDelta, Adam, TorchAdamW); one
// more, the mean gradient behind the others, where the update is deferred.
int OptimizerStatePerParameter(const UpdateRule& rule);

// What one update of a blob's parameters has in common for all of them. The rule outlives it.
struct UpdateStep {
  const UpdateRule& rule;
  int64_t iteration = 0;  // counts updates from 0
  Multipliers multipliers = {};
  // 1 / workers where the gradient is the sum of all workers' gradients.
  float gradient_scale = 1;
  // For asynchronous training, where each worker's gradient is an update of its own, with a
  // worker's share of the rate.
  float learning_rate_scale = 1;
  // Types TorchSGD and TorchAdamW: the numbers of this iteration. They take the place of the rule's
  // and of the multipliers, and there is no learning_rate_scale.
  const ParameterGroup* group = nullptr;
};

// The scalars of an update of Caffe's; Update() says what they are made of.
UpdateScalars ScalarsOf(const UpdateStep& step);

// One update of n parameters, in place. With S = OptimizerStatePerParameter(rule), parameter i
// becomes what the rule's formula in core/arithmetic/update_element.h, or torch_element.h, makes of
// it, of its state optimizer_state[i * S] ... optimizer_state[i * S + S - 1], and of, under
// Caffe's,
//   g     = gradient_sum[i] * gradient_scale + decay * (parameter or its sign)
//   decay = weight_decay * multipliers.decay
//   rate  = LearningRate(rule, iteration) * learning_rate_scale * multipliers.lr
//
// parameters and gradient_sum have the same length n; optimizer_state has n * S floats, zeros
// before the first update. The three must not overlap. State is interleaved, parameter by
// parameter, so a range of parameters has one range of state however a blob is cut. Elements are
// independent and each operation is rounded to float once: updating in pieces gives the same bits
// as whole.
//
// If the rule is deferred, parameters and their state stay as they are, and only
// gradient_sum[i] * gradient_scale is written, behind the state. Of type MeanGradient, which has no
// other state, optimizer_state may be the memory of gradient_sum.
void Update(const UpdateStep& step, std::span<const float> gradient_sum,
            std::span<float> parameters, std::span<float> optimizer_state);

// The update that a deferred rule has left out, in place, with the gradients that Update has put
// into `optimizer_state`, times gradient_scale. Not for type MeanGradient.
void UpdateDeferred(const UpdateStep& step, std::span<float> parameters,
                    std::span<float> optimizer_state);

}  // namespace poseidon
