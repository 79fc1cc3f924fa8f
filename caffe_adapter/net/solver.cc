#include "caffe_adapter/net/solver.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "caffe_adapter/net/layer_types.h"
#include "caffe_adapter/net/solver_checks.h"
#include "caffe_adapter/net/upgrade.h"
#include "core/named_file.h"
#include "core/text/listed.h"
#include "proto/text_format.h"

namespace poseidon {
namespace {

// Reads a solver's nets.
class NetReader {
 public:
  NetReader(const std::string& solver_path, const Solver& solver)
      : solver_path_(solver_path), solver_(solver), parameter_(solver.parameter) {}

  SolverNet Train() const {
    const int given = parameter_.has_net() + parameter_.has_net_param() +
                      parameter_.has_train_net() + parameter_.has_train_net_param();
    if (given != 1) {
      throw ConfigError(solver_.locate(""),
                        "the solver names " + std::to_string(given) +
                            " nets to train; expected one of net, net_param, train_net, "
                            "train_net_param");
    }
    SolverNet net = parameter_.has_train_net() ? ReadNet(parameter_.train_net(), "train_net")
                    : parameter_.has_train_net_param()
                        ? NetInside(parameter_.train_net_param(), "train_net_param")
                        : GeneralNet();
    net.phase = caffe::TRAIN;
    net.state = parameter_.train_state();
    return net;
  }

  // As Caffe: first the nets only for tests, then the net that serves both phases for each
  // test_iter left over.
  std::vector<SolverNet> Tests() const {
    std::vector<SolverNet> nets;
    for (int i = 0; i < parameter_.test_net_param_size(); ++i) {
      nets.push_back(
          NetInside(parameter_.test_net_param(i), "test_net_param." + std::to_string(i)));
    }
    for (int i = 0; i < parameter_.test_net_size(); ++i) {
      nets.push_back(ReadNet(parameter_.test_net(i), "test_net." + std::to_string(i)));
    }
    const size_t tests = parameter_.test_iter_size();
    const bool general = parameter_.has_net() || parameter_.has_net_param();
    if (nets.size() > tests || (nets.size() < tests && !general)) {
      throw ConfigError(solver_.locate(tests > 0 ? "test_iter.0" : "test_net.0"),
                        "there are " + std::to_string(tests) + " test_iter entries for " +
                            std::to_string(nets.size()) +
                            " test nets (test_net, test_net_param); expected one for each");
    }
    while (nets.size() < tests) nets.push_back(GeneralNet());
    SetTestStates(nets);
    return nets;
  }

 private:
  SolverNet GeneralNet() const {
    return parameter_.has_net() ? ReadNet(parameter_.net(), "net")
                                : NetInside(parameter_.net_param(), "net_param");
  }

  SolverNet NetInside(const caffe::NetParameter& net, const std::string& field) const {
    SolverNet result;
    result.net = net;
    result.locate = [locate = solver_.locate, field](const std::string& path) {
      return locate(path.empty() ? field : field + "." + path);
    };
    result.locate = UpgradeNet(result.net, result.locate);
    return result;
  }

  SolverNet ReadNet(const std::string& path, const std::string& field) const {
    const std::optional<std::string> found = FindNamedFile(solver_path_, path);
    if (!found) {
      const std::string beside =
          (std::filesystem::path(solver_path_).parent_path() / path).string();
      throw ConfigError(solver_.locate(field), "no net file " + path + " in the working directory" +
                                                   (beside == path ? "" : ", nor " + beside) +
                                                   ", nor in a directory above that file's");
    }
    SolverNet result;
    const TextLocations locations = ReadTextFile(*found, result.net);
    result.locate = [locations](const std::string& place) {
      return locations.Find(caffe::NetParameter::default_instance(), place);
    };
    result.locate = UpgradeNet(result.net, result.locate);
    return result;
  }

  void SetTestStates(std::vector<SolverNet>& nets) const {
    const int states = parameter_.test_state_size();
    if (states != 0 && states != static_cast<int>(nets.size())) {
      throw ConfigError(solver_.locate("test_state.0"),
                        "there are " + std::to_string(states) + " test_state entries for " +
                            std::to_string(nets.size()) + " test nets; expected one for each");
    }
    for (size_t i = 0; i < nets.size(); ++i) {
      nets[i].phase = caffe::TEST;
      if (states != 0) nets[i].state = parameter_.test_state(static_cast<int>(i));
    }
  }

  const std::string& solver_path_;
  const Solver& solver_;
  const caffe::SolverParameter& parameter_;
};

std::vector<int> Layers(const SolverNet& net) {
  DescribeOptions options;
  options.state = net.state;
  options.locate = net.locate;
  return LayersInPhase(net.net, net.phase, options);
}

// Whether a layer has a loss to train on or, unless it is a loss, data to read.
bool HasLoss(const caffe::LayerParameter& layer) {
  for (const float weight : layer.loss_weight()) {
    if (weight != 0) return true;
  }
  const LayerType* type = FindLayerType(layer.type());
  // An unknown type may be a loss; DescribeNet refuses it with its name.
  return layer.loss_weight_size() == 0 && (!type || type->loss);
}

void CheckNetsFit(const Solver& solver) {
  bool has_loss = false;
  bool has_python = false;
  for (const int i : Layers(solver.train)) {
    has_loss |= HasLoss(solver.train.net.layer(i));
    has_python |= solver.train.net.layer(i).type() == "Python";
  }
  if (!has_loss) {
    throw ConfigError(solver.train.locate(""),
                      "the net does not fit its solver (" + solver.locate("").ToString() +
                          "): no layer in TRAIN has a loss to train on" +
                          (has_python ? "; a Python layer is a loss only with a loss_weight" : ""));
  }
  for (const SolverNet& test : solver.tests) {
    if (Layers(test).empty()) {
      throw ConfigError(solver.locate("test_iter.0"),
                        "the net does not fit its solver: test_iter is given, but no layer of " +
                            test.locate("").ToString() + " is in TEST");
    }
  }
}

// As Caffe names snapshots in a directory. Not, as Caffe does, wherever there is a directory of
// that name: a job may make one beside its own snapshots, which would then be looked for in it.
void NameSnapshotsInDirectory(const std::string& solver_path, caffe::SolverParameter& solver) {
  if (!solver.snapshot_prefix().ends_with('/')) return;
  solver.mutable_snapshot_prefix()->append(std::filesystem::path(solver_path).stem().string());
}

}  // namespace

Solver LoadSolver(const std::string& path) {
  Solver solver;
  const TextLocations locations = ReadTextFile(path, solver.parameter);
  solver.locate = [locations](const std::string& place) {
    return locations.Find(caffe::SolverParameter::default_instance(), place);
  };
  SetSolverType(solver.parameter, solver.locate);
  CheckSolver(solver.parameter, solver.locate);
  NameSnapshotsInDirectory(path, solver.parameter);
  const NetReader reader(path, solver);
  solver.train = reader.Train();
  solver.tests = reader.Tests();
  CheckNetsFit(solver);
  return solver;
}

NetDescription DescribeNet(const SolverNet& net, std::optional<int64_t> batch_size) {
  DescribeOptions options;
  options.batch_size = batch_size;
  options.state = net.state;
  options.locate = net.locate;
  return DescribeNet(net.net, net.phase, options);
}

std::string TestNetName(const Solver& solver, size_t number) {
  const auto& stages = solver.tests.at(number).state.stage();
  std::string name = "test net " + std::to_string(number);
  if (!stages.empty())
    name += (stages.size() > 1 ? " (stages " : " (stage ") + Listed(stages) + ")";
  return name;
}

UpdateRuleSpec ToUpdateRuleSpec(const caffe::SolverParameter& solver) {
  UpdateRuleSpec rule;
  rule.set_type(solver.type());
  rule.set_base_lr(solver.base_lr());
  rule.set_lr_policy(solver.lr_policy());
  rule.set_gamma(solver.gamma());
  rule.set_power(solver.power());
  rule.set_stepsize(solver.stepsize());
  *rule.mutable_stepvalue() = solver.stepvalue();
  rule.set_max_iter(solver.max_iter());
  rule.set_momentum(solver.momentum());
  rule.set_weight_decay(solver.weight_decay());
  rule.set_regularization_type(solver.regularization_type());
  rule.set_delta(solver.delta());
  rule.set_momentum2(solver.momentum2());
  rule.set_rms_decay(solver.rms_decay());
  // Clipping needs the norm of the whole gradient, which only the workers see.
  if (solver.clip_gradients() >= 0) {
    rule.set_deferred(true);
    rule.set_clip_gradients(solver.clip_gradients());
  }
  return rule;
}

}  // namespace poseidon
