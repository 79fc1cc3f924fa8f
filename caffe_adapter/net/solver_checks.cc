#include "caffe_adapter/net/solver_checks.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace poseidon {
namespace {

// By the number of SolverParameter.SolverType.
constexpr std::array<const char*, 6> kSolverTypes = {"SGD",     "Nesterov", "AdaGrad",
                                                     "RMSProp", "AdaDelta", "Adam"};

class Checker {
 public:
  Checker(const caffe::SolverParameter& solver, const Locate& locate)
      : solver_(solver), locate_(locate) {}

  [[noreturn]] void Fail(const std::string& field, const std::string& message) const {
    throw ConfigError(locate_(field), message);
  }

  void CheckType() const {
    const std::string& type = solver_.type();
    if (std::find(kSolverTypes.begin(), kSolverTypes.end(), type) == kSolverTypes.end()) {
      Fail("type", "unknown solver type \"" + type +
                       "\"; Caffe's are SGD, Nesterov, AdaGrad, RMSProp, AdaDelta, Adam");
    }
    const bool has_momentum = type != "AdaGrad" && type != "RMSProp";
    if (!has_momentum && solver_.momentum() != 0) {
      Fail("momentum", "solver type " + type + " has no momentum; leave it out");
    }
    if (type == "RMSProp") Decay("rms_decay", solver_.rms_decay());
    if (type == "Adam") Decay("momentum2", solver_.momentum2());
    const bool divides = type != "SGD" && type != "Nesterov";
    if (divides && !(solver_.delta() > 0)) {
      Fail("delta", "delta must be above 0, as solver type " + type + " divides by it");
    }
  }

  void CheckSupported() const {
    if (solver_.iter_size() < 1) Fail("iter_size", "iter_size must be at least 1");
    if (solver_.clip_gradients() == 0) {
      Fail("clip_gradients", "clip_gradients is 0, which would leave nothing; leave it out");
    }
    if (solver_.snapshot_diff()) Fail("snapshot_diff", "snapshot_diff is not supported");
    if (solver_.debug_info()) Fail("debug_info", "debug_info is not supported");
    const std::string& regularization = solver_.regularization_type();
    if (regularization != "L1" && regularization != "L2") {
      Fail("regularization_type",
           "regularization_type is \"" + regularization + "\"; it must be \"L1\" or \"L2\"");
    }
  }

  void CheckRanges() const {
    if (!solver_.has_base_lr()) Fail("", "base_lr, the learning rate, is missing");
    if (!solver_.has_max_iter()) Fail("", "max_iter, how many iterations to train, is missing");
    if (solver_.max_iter() < 1) Fail("max_iter", "max_iter must be at least 1");
    if (solver_.average_loss() < 1) Fail("average_loss", "average_loss must be at least 1");
    NotNegative("base_lr", solver_.base_lr());
    Decay("momentum", solver_.momentum());
    NotNegative("weight_decay", solver_.weight_decay());
    NotNegative("display", solver_.display());
    NotNegative("snapshot", solver_.snapshot());
    NotNegative("test_interval", solver_.test_interval());
    for (int i = 0; i < solver_.test_iter_size(); ++i) {
      if (solver_.test_iter(i) < 1) {
        Fail("test_iter." + std::to_string(i), "test_iter must be at least 1");
      }
    }
    if (solver_.test_iter_size() > 0 && solver_.test_interval() == 0) {
      Fail("test_iter.0",
           "test_iter needs test_interval, how many iterations to train between tests");
    }
    if (solver_.snapshot() > 0 && solver_.snapshot_prefix().empty()) {
      Fail("snapshot", "snapshot needs snapshot_prefix, where snapshots go");
    }
  }

  void CheckPolicy() const {
    const std::string& policy = solver_.lr_policy();
    const bool gamma = solver_.has_gamma();
    const bool power = solver_.has_power();
    const bool stepsize = solver_.has_stepsize();
    if (policy == "fixed") {
    } else if (policy == "step" || policy == "sigmoid") {
      Needs(gamma, "gamma");
      Needs(stepsize, "stepsize");
      if (solver_.stepsize() < 1) Fail("stepsize", "stepsize must be at least 1");
    } else if (policy == "exp") {
      Needs(gamma, "gamma");
    } else if (policy == "inv") {
      Needs(gamma, "gamma");
      Needs(power, "power");
      NotNegative("power", solver_.power());
    } else if (policy == "poly") {
      Needs(power, "power");
      NotNegative("power", solver_.power());
    } else if (policy == "multistep") {
      Needs(gamma, "gamma");
      Needs(solver_.stepvalue_size() > 0, "stepvalue");
    } else {
      Fail(solver_.has_lr_policy() ? "lr_policy" : "",
           (solver_.has_lr_policy() ? "unknown lr_policy \"" + policy + "\""
                                    : std::string("lr_policy is missing")) +
               "; expected fixed, step, exp, inv, multistep, poly or sigmoid");
    }
  }

 private:
  void NotNegative(const std::string& field, double value) const {
    if (!(value >= 0)) Fail(field, field + " must not be negative");
  }

  // What is left of a mean at each iteration.
  void Decay(const std::string& field, double value) const {
    NotNegative(field, value);
    if (value >= 1) Fail(field, field + " must be below 1");
  }

  void Needs(bool given, const std::string& field) const {
    if (!given) Fail("lr_policy", "lr_policy \"" + solver_.lr_policy() + "\" needs " + field);
  }

  const caffe::SolverParameter& solver_;
  const Locate& locate_;
};

}  // namespace

void SetSolverType(caffe::SolverParameter& solver, const Locate& locate) {
  if (!solver.has_solver_type()) return;
  if (solver.has_type()) {
    throw ConfigError(locate("solver_type"), "give type or the older solver_type, not both");
  }
  solver.set_type(kSolverTypes[solver.solver_type()]);
}

void CheckSolver(const caffe::SolverParameter& solver, const Locate& locate) {
  const Checker checker(solver, locate);
  checker.CheckType();
  checker.CheckSupported();
  checker.CheckRanges();
  checker.CheckPolicy();
}

}  // namespace poseidon
