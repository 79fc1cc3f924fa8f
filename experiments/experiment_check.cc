#include "experiments/experiment_check.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "experiments/experiment_points.h"
#include "experiments/field_checks.h"
#include "experiments/result_columns.h"
#include "planner/policies.h"
#include "proto/cluster_rates.h"
#include "simulation/failures/failure_answer.h"

namespace poseidon {
namespace {

using Names = std::vector<std::string>;

// Points of a sweep: what takes seconds to make, and some hundred megabytes.
constexpr int kMostPoints = 100000;
constexpr double kMostBatch = std::numeric_limits<int32_t>::max();
// Workers, or servers, of a cluster (proto/job_check.cc).
constexpr double kMostNodes = 1e6;

bool HasTimes(const Replay& replay) {
  return std::any_of(replay.layers().begin(), replay.layers().end(), [](const ReplayLayer& layer) {
    return layer.forward_ms() > 0 || layer.backward_ms() > 0;
  });
}

Names NetNames(const Experiment& experiment) {
  Names names;
  for (const Net& net : experiment.net()) names.push_back(net.name());
  return names;
}

Names SystemNames(const Experiment& experiment) {
  Names names;
  for (const System& system : experiment.system()) names.push_back(system.name());
  for (const auto& [policy, communication] : SimulatedPolicies()) {
    names.push_back(SystemOf(policy));
    names.push_back(policy);
  }
  return names;
}

Names SweepNames(const Experiment& experiment) {
  Names names;
  for (int i = 0; i < experiment.sweep_size(); ++i) names.push_back(NameOfSweep(experiment, i));
  return names;
}

Names ConditionNames(const Experiment& experiment) {
  Names names;
  for (const Sweep& sweep : experiment.sweep()) {
    for (const Condition& condition : sweep.condition()) names.push_back(condition.name());
  }
  return names;
}

// What is compared: nets and systems.
class SubjectChecker {
 public:
  explicit SubjectChecker(const ExperimentFile& file)
      : fields_(file), experiment_(file.experiment) {}

  void Check() const {
    CheckNets();
    CheckSystems();
  }

 private:
  void CheckNets() const {
    std::set<std::string> names;
    for (int i = 0; i < experiment_.net_size(); ++i) {
      const Net& net = experiment_.net(i);
      const std::string field = "net." + std::to_string(i);
      if (net.name().empty()) fields_.Fail(field, "a net has no name");
      if (!names.insert(net.name()).second) {
        fields_.Fail(field + ".name", "there are two nets \"" + net.name() + "\"");
      }
      if (net.has_net() + net.has_solver() + net.has_profile() + net.has_replay() != 1) {
        fields_.Fail(field, "the net \"" + net.name() +
                                "\" must have exactly one of net, solver, profile and replay");
      }
      if (net.train() && !net.has_solver()) {
        fields_.Fail(field + ".train", "only a net with a solver can be trained");
      }
      if (net.has_shuffle() && !net.train()) {
        fields_.Fail(field + ".shuffle", "shuffle is of a net to train");
      }
      CheckSource(field, net);
      if (net.has_batch()) {
        fields_.CheckAtLeast(field + ".batch", static_cast<double>(net.batch()), 1);
        fields_.CheckAtMost(field + ".batch", net.batch(), kMostBatch);
      }
      if (net.has_iterations()) {
        fields_.CheckAtLeast(field + ".iterations", static_cast<double>(net.iterations()), 1);
        fields_.CheckAtMost(field + ".iterations", net.iterations(), kMostIterations);
        if (!net.train()) fields_.Fail(field + ".iterations", "iterations are of a net to train");
      }
      if (net.has_images_per_second()) {
        fields_.CheckRate(CheckImageRate, field + ".images_per_second", net.images_per_second());
      }
    }
  }

  // What says the layers, and what that leaves to be said.
  void CheckSource(const std::string& field, const Net& net) const {
    if (!net.has_replay() && net.net().empty() && net.solver().empty() && net.profile().empty()) {
      fields_.Fail(field, "the net \"" + net.name() + "\" names no file");
    }
    const std::string measured = net.has_profile() ? "profile" : net.has_replay() ? "replay" : "";
    if (net.has_batch() && net.has_profile()) {
      fields_.Fail(field + ".batch", "batch can't change a profile; measure it again");
    }
    if (net.has_batch() && HasTimes(net.replay()) && !net.has_images_per_second()) {
      fields_.Fail(field + ".batch",
                   "batch can't change a replay whose layers have times; write those of that batch "
                   "and replay.batch, or give images_per_second");
    }
    if (net.has_input() && !measured.empty()) {
      fields_.Fail(field + ".input",
                   "input can't change a " + measured + ", which has layers of its own");
    }
  }

  void CheckSystems() const {
    Names policies;
    for (const auto& [name, communication] : SimulatedPolicies()) policies.push_back(name);
    std::set<std::string> names;
    for (int i = 0; i < experiment_.system_size(); ++i) {
      const System& system = experiment_.system(i);
      const std::string field = "system." + std::to_string(i);
      if (system.name().empty()) fields_.Fail(field, "a system has no name");
      if (!names.insert(system.name()).second) {
        fields_.Fail(field + ".name", "there are two systems \"" + system.name() + "\"");
      }
      if (!FindPolicy(SimulatedPolicies(), system.policy())) {
        fields_.CheckKnown(field + ".policy", "policy", system.policy(), policies);
      }
      fields_.CheckRate(
          [](const std::string&, const std::string& text) { ParseRecoveryChoice(text); },
          field + ".recovery", system.recovery());
      if (system.has_grid_row()) fields_.CheckAtLeast(field + ".grid_row", system.grid_row(), 1);
    }
  }

  FieldChecks fields_;
  const Experiment& experiment_;
};

// What is run: sweeps and their conditions.
class SweepChecker {
 public:
  explicit SweepChecker(const ExperimentFile& file) : fields_(file), experiment_(file.experiment) {}

  void Check() const {
    for (int i = 0; i < experiment_.sweep_size(); ++i) {
      CheckSweep("sweep." + std::to_string(i), experiment_.sweep(i));
    }
    CheckNames();
    CheckConditionNames();
  }

 private:
  void CheckNames() const {
    std::set<std::string> names;
    for (int i = 0; i < experiment_.sweep_size(); ++i) {
      const std::string field = "sweep." + std::to_string(i) + ".name";
      const std::string name = NameOfSweep(experiment_, i);
      if (name.empty()) fields_.Fail(field, "a sweep's name is empty");
      if (!names.insert(name).second) {
        fields_.Fail(experiment_.sweep(i).has_name() ? field : "sweep." + std::to_string(i),
                     "there are two sweeps \"" + name + "\"");
      }
    }
  }

  void CheckSweep(const std::string& field, const Sweep& sweep) const {
    fields_.CheckAllKnown(field + ".net", "net", sweep.net(), NetNames(experiment_));
    if (sweep.system().empty()) fields_.Fail(field, "the sweep names no system");
    fields_.CheckAllKnown(field + ".system", "system", sweep.system(), SystemNames(experiment_));
    const auto nodes = [this](int least) {
      return [this, least](const std::string& at, int value) {
        fields_.CheckAtLeast(at, value, least);
        fields_.CheckAtMost(at, value, kMostNodes);
      };
    };
    FieldChecks::ForEach(field + ".workers", sweep.workers(), nodes(1));
    FieldChecks::ForEach(field + ".spare_servers", sweep.spare_servers(), nodes(0));
    FieldChecks::ForEach(
        field + ".devices_per_worker", sweep.devices_per_worker(),
        [this](const std::string& at, int value) { fields_.CheckAtLeast(at, value, 1); });
    FieldChecks::ForEach(field + ".bandwidth", sweep.bandwidth(),
                         [this](const std::string& at, const std::string& text) {
                           fields_.CheckRate(CheckBitRate, at, text);
                         });
    FieldChecks::ForEach(field + ".latency", sweep.latency(),
                         [this](const std::string& at, const std::string& text) {
                           fields_.CheckRate(CheckDelay, at, text);
                         });
    fields_.CheckAtLeast(field + ".iterations", sweep.iterations(), 1);
    fields_.CheckAtMost(field + ".iterations", sweep.iterations(), kMostIterations);
    if (sweep.has_failures()) CheckFailures(field, sweep);
    CheckPoints(field, sweep);
    for (int i = 0; i < sweep.condition_size(); ++i) {
      const Condition& condition = sweep.condition(i);
      const std::string at = field + ".condition." + std::to_string(i);
      CheckCondition(at, condition);
      // A plan that was made for other machines is what it is, whatever befalls it.
      if (sweep.plan_only() && condition.deviation_size() > 0 && !condition.known()) {
        fields_.Fail(at, "what is only planned is not changed by the condition \"" +
                             condition.name() + "\"; say known: true, or leave plan_only out");
      }
      if (sweep.has_failures() && condition.deviation_size() > 0 && !condition.known()) {
        fields_.Fail(at,
                     "what failures cost is of machines that the job knows, not of those of the "
                     "condition \"" +
                         condition.name() + "\"; say known: true, or leave failures out");
      }
    }
  }

  void CheckFailures(const std::string& field, const Sweep& sweep) const {
    const std::string at = field + ".failures";
    const Failures& failures = sweep.failures();
    if (sweep.plan_only()) fields_.Fail(at, "what is only planned has no failures");
    if (failures.mtbf().empty())
      fields_.Fail(at, "failures need mtbf, the time until a node fails");
    const auto positive = [this](const std::string& of, const std::string& text) {
      fields_.CheckRate(ParsePositiveSeconds, of, text);
    };
    FieldChecks::ForEach(at + ".mtbf", failures.mtbf(), positive);
    fields_.CheckRate(ParseReplacementSeconds, at + ".replacement", failures.replacement());
    if (failures.has_snapshot_cost()) positive(at + ".snapshot_cost", failures.snapshot_cost());
    fields_.CheckAtLeast(at + ".losses", failures.losses(), 1);
  }

  // Before any is made: each has a job config of its own.
  void CheckPoints(const std::string& field, const Sweep& sweep) const {
    double points = sweep.system_size();
    points *= sweep.net().empty() ? experiment_.net_size() : sweep.net_size();
    for (const int values :
         {sweep.workers_size(), sweep.spare_servers_size(), sweep.bandwidth_size(),
          sweep.latency_size(), sweep.devices_per_worker_size(), sweep.condition_size(),
          sweep.failures().mtbf_size()}) {
      points *= std::max(values, 1);
    }
    if (points <= kMostPoints) return;
    fields_.Fail(field, "the sweep has " + std::to_string(static_cast<int64_t>(points)) +
                            " points, and a sweep may have " + std::to_string(kMostPoints) +
                            "; leave some values out, or make several experiments of it");
  }

  void CheckCondition(const std::string& field, const Condition& condition) const {
    if (condition.name().empty()) fields_.Fail(field, "a condition has no name");
    std::set<int> workers;
    for (int i = 0; i < condition.deviation_size(); ++i) {
      const Deviation& deviation = condition.deviation(i);
      const std::string at = field + ".deviation." + std::to_string(i);
      if (!deviation.has_worker()) fields_.Fail(at, "a deviation names no worker");
      fields_.CheckAtLeast(at + ".worker", deviation.worker(), 0);
      if (!workers.insert(deviation.worker()).second) {
        fields_.Fail(at + ".worker", "worker " + std::to_string(deviation.worker()) +
                                         " is there twice; say all of it in one deviation");
      }
      fields_.CheckRate(CheckComputeFactor, at + ".compute_factor", deviation.compute_factor());
      if (deviation.has_bandwidth()) {
        fields_.CheckRate(CheckBitRate, at + ".bandwidth", deviation.bandwidth());
      }
    }
  }

  // Results and figures tell conditions apart by their names.
  void CheckConditionNames() const {
    std::map<std::string, std::string> known;
    for (int s = 0; s < experiment_.sweep_size(); ++s) {
      for (int c = 0; c < experiment_.sweep(s).condition_size(); ++c) {
        const Condition& condition = experiment_.sweep(s).condition(c);
        const std::string said = condition.SerializeAsString();
        if (known.try_emplace(condition.name(), said).first->second == said) continue;
        fields_.Fail("sweep." + std::to_string(s) + ".condition." + std::to_string(c) + ".name",
                     "there are two conditions \"" + condition.name() + "\" that are not the same");
      }
    }
  }

  FieldChecks fields_;
  const Experiment& experiment_;
};

// What is shown: published values and figures.
class FigureChecker {
 public:
  explicit FigureChecker(const ExperimentFile& file)
      : fields_(file), experiment_(file.experiment) {}

  void Check() const {
    for (int i = 0; i < experiment_.published_size(); ++i) {
      CheckPublished("published." + std::to_string(i), experiment_.published(i));
    }
    CheckFigures();
  }

 private:
  void CheckPublished(const std::string& field, const Published& published) const {
    if (published.has_net())
      fields_.CheckKnown(field + ".net", "net", published.net(), NetNames(experiment_));
    if (published.has_system()) {
      fields_.CheckKnown(field + ".system", "system", published.system(), SystemNames(experiment_));
    }
    if (published.has_bandwidth()) {
      fields_.CheckRate(CheckBitRate, field + ".bandwidth", published.bandwidth());
    }
    if (published.has_speedup() == published.has_efficiency() ||
        !(published.speedup() > 0 || published.efficiency() > 0)) {
      fields_.Fail(field, "a published value needs either a speedup or an efficiency, above 0");
    }
    if (published.source().empty()) fields_.Fail(field, "a published value needs its source");
  }

  void CheckFigures() const {
    std::set<std::string> names;
    for (int i = 0; i < experiment_.figure_size(); ++i) {
      const Figure& figure = experiment_.figure(i);
      const std::string field = "figure." + std::to_string(i);
      fields_.CheckName(figure.has_name() ? field + ".name" : field, figure.name());
      if (!names.insert(figure.name()).second) {
        fields_.Fail(field + ".name", "there are two figures \"" + figure.name() + "\"");
      }
      if (figure.kind() == Figure::MAP && figure.color().empty()) {
        fields_.Fail(field, "a MAP needs `color`, the column that it shows");
      }
      CheckColumns(field, figure);
      CheckIdeal(field, figure);
      fields_.CheckAllKnown(field + ".net", "net", figure.net(), NetNames(experiment_));
      fields_.CheckAllKnown(field + ".system", "system", figure.system(), SystemNames(experiment_));
      fields_.CheckAllKnown(field + ".condition", "condition", figure.condition(),
                            ConditionNames(experiment_));
      fields_.CheckAllKnown(field + ".sweep", "sweep", figure.sweep(), SweepNames(experiment_));
      FieldChecks::ForEach(
          field + ".workers", figure.workers(),
          [this](const std::string& at, int value) { fields_.CheckAtLeast(at, value, 1); });
    }
  }

  void CheckColumns(const std::string& field, const Figure& figure) const {
    const Names columns(std::begin(kResultColumns), std::end(kResultColumns));
    fields_.CheckKnown(field + ".x", "column", figure.x(), columns);
    fields_.CheckKnown(field + ".y", "column", figure.y(), columns);
    fields_.CheckKnown(field + ".series", "column", figure.series(), columns);
    if (figure.has_panel()) fields_.CheckKnown(field + ".panel", "column", figure.panel(), columns);
    if (figure.has_color()) fields_.CheckKnown(field + ".color", "column", figure.color(), columns);
  }

  // What there would be without communication can be said of these only.
  void CheckIdeal(const std::string& field, const Figure& figure) const {
    const Names known = {"speedup", "efficiency", "images_per_second", "iteration_seconds"};
    if (!figure.ideal() || figure.kind() != Figure::LINES) return;
    if (std::find(known.begin(), known.end(), figure.y()) != known.end()) return;
    fields_.Fail(field + ".ideal", "nobody knows an ideal " + figure.y() +
                                       "; leave `ideal` out, or let y be speedup, efficiency, "
                                       "images_per_second or iteration_seconds");
  }

  FieldChecks fields_;
  const Experiment& experiment_;
};

}  // namespace

void CheckExperiment(const ExperimentFile& file) {
  const FieldChecks fields(file);
  const Experiment& experiment = file.experiment;
  fields.CheckName("name", experiment.name());
  if (experiment.sweep_size() == 0) fields.Fail("", "there is no sweep, so there is nothing to do");
  if (experiment.net_size() == 0) fields.Fail("", "there is no net");
  SubjectChecker(file).Check();
  SweepChecker(file).Check();
  FigureChecker(file).Check();
}

}  // namespace poseidon
