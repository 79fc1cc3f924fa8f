#include "tests/golden/solver_cases.h"

#include <string_view>

#include "tests/golden/nets.h"

namespace poseidon {
namespace {

struct Named {
  const char* name;
  const char* text;
};

// Each type with the fields that it reads; rates at which its first updates are of one size.
constexpr Named kTypes[] = {
    {"SGD", "base_lr: 0.05 momentum: 0.9"},
    {"Nesterov", "base_lr: 0.05 momentum: 0.9"},
    {"AdaGrad", "base_lr: 0.02"},
    {"RMSProp", "base_lr: 0.005 rms_decay: 0.95"},
    {"AdaDelta", "base_lr: 1 momentum: 0.9 delta: 1e-6"},
    {"Adam", "base_lr: 0.01 momentum: 0.9 momentum2: 0.99"},
};

constexpr Named kSettings[] = {
    {"plain", "lr_policy: 'fixed'"},
    {"l2", "lr_policy: 'fixed' weight_decay: 0.02"},
    {"l1", "lr_policy: 'fixed' weight_decay: 0.005 regularization_type: 'L1'"},
    {"clip", "lr_policy: 'fixed' clip_gradients: 0.4"},
    {"iter_size", "lr_policy: 'fixed' iter_size: 3"},
    {"all",
     "lr_policy: 'inv' gamma: 0.1 power: 0.75 weight_decay: 0.02 clip_gradients: 0.8 "
     "iter_size: 2"},
};

constexpr Named kPolicies[] = {
    {"step", "gamma: 0.5 stepsize: 3"},
    {"exp", "gamma: 0.9"},
    {"inv", "gamma: 0.2 power: 0.5"},
    {"multistep", "gamma: 0.3 stepvalue: 2 stepvalue: 4 stepvalue: 11"},
    {"poly", "power: 2"},
    {"sigmoid", "gamma: 0.5 stepsize: 4"},
};

constexpr Named kTrainings[] = {
    {"lenet", "base_lr: 0.02 momentum: 0.9 weight_decay: 0.0005"},
    {"cifar10_quick", "base_lr: 0.02 momentum: 0.9 weight_decay: 0.004"},
    {"resnet", "base_lr: 0.02 momentum: 0.9 weight_decay: 0.0005"},
    {"inception", "base_lr: 0.02 momentum: 0.9 weight_decay: 0.0005"},
    {"autoencoder", "base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005"},
    {"siamese", "base_lr: 0.01 momentum: 0.9 weight_decay: 0.0005"},
    {"segmentation", "base_lr: 0.05 momentum: 0.9 weight_decay: 0.0005"},
    {"rules",
     "base_lr: 0.02 momentum: 0.9 weight_decay: 0.0005 "
     "train_state { stage: 'tanh' stage: 'small' level: 2 }"},
    {"embedding", "base_lr: 0.02 momentum: 0.9 weight_decay: 0.0005"},
    {"filter", "base_lr: 0.05 momentum: 0.9 weight_decay: 0.0005"},
    {"recurrent", "base_lr: 0.2 momentum: 0.9 weight_decay: 0.0005"},
};

std::string Common(const char* type) {
  return "type: '" + std::string(type) +
         "' random_seed: 7 solver_mode: CPU snapshot_after_train: false";
}

}  // namespace

std::vector<SolverCase> SolverCases() {
  std::vector<SolverCase> cases;
  for (const Named& type : kTypes) {
    for (const Named& setting : kSettings) {
      cases.push_back({std::string(type.name) + "_" + setting.name,
                       Common(type.name) + " max_iter: 16 " + type.text + " " + setting.text,
                       SmallNet(),
                       {1, 4, 16}});
    }
  }
  for (const Named& policy : kPolicies) {
    cases.push_back({std::string("policy_") + policy.name,
                     Common("SGD") + " max_iter: 16 base_lr: 0.05 lr_policy: '" + policy.name +
                         "' " + policy.text,
                     SmallNet(),
                     {1, 4, 16}});
  }
  for (const Named& training : kTrainings) {
    cases.push_back({std::string("training_") + training.name,
                     Common("SGD") + " max_iter: 25 lr_policy: 'fixed' " + training.text,
                     TrainingNet(training.name),
                     {25}});
  }
  return cases;
}

}  // namespace poseidon
