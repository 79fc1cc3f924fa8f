#include "experiments/experiment_file.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/nearest.h"
#include "core/units.h"
#include "experiments/result_columns.h"
#include "planner/policies.h"

namespace poseidon {
namespace {

using Names = std::vector<std::string>;

// Far above what anybody waits for, and far below what an int holds.
constexpr double kMostIterations = 1e6;
// A worker that is slower does not compute.
constexpr double kMostComputeFactor = 1e6;
constexpr double kMostBatch = std::numeric_limits<int32_t>::max();

class Checker {
 public:
  explicit Checker(const ExperimentFile& file) : file_(file) {}

  void Check() const {
    const Experiment& experiment = file_.experiment;
    CheckName("name", experiment.name());
    if (experiment.sweep_size() == 0) Fail("", "there is no sweep, so there is nothing to do");
    if (experiment.net_size() == 0) Fail("", "there is no net");
    CheckNets();
    CheckSystems();
    for (int i = 0; i < experiment.sweep_size(); ++i) {
      CheckSweep("sweep." + std::to_string(i), experiment.sweep(i));
    }
    CheckConditionNames();
    for (int i = 0; i < experiment.published_size(); ++i) {
      CheckPublished("published." + std::to_string(i), experiment.published(i));
    }
    CheckFigures();
  }

 private:
  [[noreturn]] void Fail(const std::string& field, const std::string& what) const {
    throw ConfigError(file_.Where(field), what);
  }

  // Such names are parts of files' names.
  void CheckName(const std::string& field, const std::string& name) const {
    constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    if (!name.empty() && name.find_first_not_of(kLetters) == std::string::npos) return;
    Fail(field, "the name \"" + name + "\" must be of letters, digits, '_' and '-'");
  }

  void CheckAtLeast(const std::string& field, double value, double least) const {
    if (value >= least) return;
    // Of an entry of a list, the list's name.
    std::string name = field;
    while (std::isdigit(static_cast<unsigned char>(name.back())) || name.back() == '.') {
      name.pop_back();
    }
    Fail(field, name.substr(name.rfind('.') + 1) + " must be at least " +
                    std::to_string(static_cast<int64_t>(least)));
  }

  void CheckAtMost(const std::string& field, int64_t value, double most) const {
    if (static_cast<double>(value) <= most) return;
    Fail(field, field.substr(field.rfind('.') + 1) + " is " + std::to_string(value) +
                    "; it must be at most " + std::to_string(static_cast<int64_t>(most)));
  }

  // `known` must have it.
  void CheckKnown(const std::string& field, const std::string& what, const std::string& name,
                  const Names& known) const {
    if (std::find(known.begin(), known.end(), name) != known.end()) return;
    const auto nearest = Nearest(name, known);
    std::string all;
    for (const std::string& other : known) all += (all.empty() ? "" : ", ") + other;
    Fail(field, "there is no " + what + " \"" + name + "\"; " +
                    (nearest ? "did you mean \"" + *nearest + "\"?" : "there are " + all));
  }

  template <typename Parse>
  void CheckQuantity(const std::string& field, const std::string& text, Parse parse) const {
    try {
      parse(text);
    } catch (const ConfigError& error) {
      Fail(field, error.what());
    }
  }

  void CheckNets() const {
    std::set<std::string> names;
    for (int i = 0; i < file_.experiment.net_size(); ++i) {
      const Net& net = file_.experiment.net(i);
      const std::string field = "net." + std::to_string(i);
      if (net.name().empty()) Fail(field, "a net has no name");
      if (!names.insert(net.name()).second) {
        Fail(field + ".name", "there are two nets \"" + net.name() + "\"");
      }
      if (net.has_net() + net.has_solver() + net.has_profile() + net.has_replay() != 1) {
        Fail(field, "the net \"" + net.name() +
                        "\" must have exactly one of net, solver, profile and replay");
      }
      if (net.train() && !net.has_solver()) {
        Fail(field + ".train", "only a net with a solver can be trained");
      }
      CheckSource(field, net);
      if (net.has_batch()) {
        CheckAtLeast(field + ".batch", static_cast<double>(net.batch()), 1);
        CheckAtMost(field + ".batch", net.batch(), kMostBatch);
      }
      if (net.has_iterations()) {
        CheckAtLeast(field + ".iterations", static_cast<double>(net.iterations()), 1);
        if (!net.train()) Fail(field + ".iterations", "iterations are of a net to train");
      }
      if (net.has_images_per_second() && !(net.images_per_second() > 0)) {
        Fail(field + ".images_per_second", "images_per_second must be above 0");
      }
    }
  }

  // What says the layers, and what that leaves to be said.
  void CheckSource(const std::string& field, const Net& net) const {
    if (!net.has_replay() && net.net().empty() && net.solver().empty() && net.profile().empty()) {
      Fail(field, "the net \"" + net.name() + "\" names no file");
    }
    const std::string measured = net.has_profile() ? "profile" : net.has_replay() ? "replay" : "";
    if (net.has_batch() && net.has_profile()) {
      Fail(field + ".batch", "batch can't change a profile; measure it again");
    }
    if (net.has_input() && !measured.empty()) {
      Fail(field + ".input", "input can't change a " + measured + ", which has layers of its own");
    }
  }

  void CheckSystems() const {
    Names policies;
    for (const auto& [name, communication] : SimulatedPolicies()) policies.push_back(name);
    std::set<std::string> names;
    for (int i = 0; i < file_.experiment.system_size(); ++i) {
      const System& system = file_.experiment.system(i);
      const std::string field = "system." + std::to_string(i);
      if (system.name().empty()) Fail(field, "a system has no name");
      if (!names.insert(system.name()).second) {
        Fail(field + ".name", "there are two systems \"" + system.name() + "\"");
      }
      CheckKnown(field + ".policy", "policy", system.policy(), policies);
      if (system.has_grid_row()) CheckAtLeast(field + ".grid_row", system.grid_row(), 1);
    }
  }

  Names NetNames() const {
    Names names;
    for (const Net& net : file_.experiment.net()) names.push_back(net.name());
    return names;
  }

  Names SystemNames() const {
    Names names;
    for (const System& system : file_.experiment.system()) names.push_back(system.name());
    for (const auto& [name, communication] : SimulatedPolicies()) names.push_back(name);
    return names;
  }

  template <typename List, typename Check>
  static void ForEach(const std::string& field, const List& list, Check check) {
    for (int i = 0; i < list.size(); ++i) check(field + "." + std::to_string(i), list.Get(i));
  }

  void CheckSweep(const std::string& field, const Sweep& sweep) const {
    ForEach(field + ".net", sweep.net(), [this](const std::string& at, const std::string& name) {
      CheckKnown(at, "net", name, NetNames());
    });
    if (sweep.system().empty()) Fail(field, "the sweep names no system");
    ForEach(field + ".system", sweep.system(),
            [this](const std::string& at, const std::string& name) {
              CheckKnown(at, "system", name, SystemNames());
            });
    const auto at_least_one = [this](const std::string& at, int value) {
      CheckAtLeast(at, value, 1);
    };
    ForEach(field + ".workers", sweep.workers(), at_least_one);
    ForEach(field + ".devices_per_worker", sweep.devices_per_worker(), at_least_one);
    ForEach(field + ".spare_servers", sweep.spare_servers(),
            [this](const std::string& at, int value) { CheckAtLeast(at, value, 0); });
    ForEach(field + ".bandwidth", sweep.bandwidth(),
            [this](const std::string& at, const std::string& text) {
              CheckQuantity(at, text, ParseBitRate);
            });
    ForEach(field + ".latency", sweep.latency(),
            [this](const std::string& at, const std::string& text) {
              CheckQuantity(at, text, ParseDuration);
            });
    CheckAtLeast(field + ".iterations", sweep.iterations(), 1);
    CheckAtMost(field + ".iterations", sweep.iterations(), kMostIterations);
    for (int i = 0; i < sweep.condition_size(); ++i) {
      CheckCondition(field + ".condition." + std::to_string(i), sweep.condition(i));
    }
  }

  void CheckCondition(const std::string& field, const Condition& condition) const {
    if (condition.name().empty()) Fail(field, "a condition has no name");
    std::set<int> workers;
    for (int i = 0; i < condition.deviation_size(); ++i) {
      const Deviation& deviation = condition.deviation(i);
      const std::string at = field + ".deviation." + std::to_string(i);
      if (!deviation.has_worker()) Fail(at, "a deviation names no worker");
      CheckAtLeast(at + ".worker", deviation.worker(), 0);
      if (!workers.insert(deviation.worker()).second) {
        Fail(at + ".worker", "worker " + std::to_string(deviation.worker()) +
                                 " is there twice; say all of it in one deviation");
      }
      if (!(deviation.compute_factor() > 0 && deviation.compute_factor() <= kMostComputeFactor)) {
        Fail(at + ".compute_factor", "compute_factor must be above 0 and at most 1000000");
      }
      if (deviation.has_bandwidth()) {
        CheckQuantity(at + ".bandwidth", deviation.bandwidth(), ParseBitRate);
        if (ParseBitRate(deviation.bandwidth()) == 0) {
          Fail(at + ".bandwidth", "bandwidth must be above 0");
        }
      }
    }
  }

  // Results and figures tell conditions apart by their names.
  void CheckConditionNames() const {
    std::map<std::string, std::string> known;
    for (int s = 0; s < file_.experiment.sweep_size(); ++s) {
      for (int c = 0; c < file_.experiment.sweep(s).condition_size(); ++c) {
        const Condition& condition = file_.experiment.sweep(s).condition(c);
        const std::string said = condition.SerializeAsString();
        if (known.try_emplace(condition.name(), said).first->second == said) continue;
        Fail("sweep." + std::to_string(s) + ".condition." + std::to_string(c) + ".name",
             "there are two conditions \"" + condition.name() + "\" that are not the same");
      }
    }
  }

  Names ConditionNames() const {
    Names names;
    for (const Sweep& sweep : file_.experiment.sweep()) {
      for (const Condition& condition : sweep.condition()) names.push_back(condition.name());
    }
    return names;
  }

  void CheckPublished(const std::string& field, const Published& published) const {
    if (published.has_net()) CheckKnown(field + ".net", "net", published.net(), NetNames());
    if (published.has_system()) {
      CheckKnown(field + ".system", "system", published.system(), SystemNames());
    }
    if (published.has_bandwidth()) {
      CheckQuantity(field + ".bandwidth", published.bandwidth(), ParseBitRate);
    }
    if (published.has_speedup() == published.has_efficiency() ||
        !(published.speedup() > 0 || published.efficiency() > 0)) {
      Fail(field, "a published value needs either a speedup or an efficiency, above 0");
    }
    if (published.source().empty()) Fail(field, "a published value needs its source");
  }

  void CheckFigures() const {
    std::set<std::string> names;
    for (int i = 0; i < file_.experiment.figure_size(); ++i) {
      const Figure& figure = file_.experiment.figure(i);
      const std::string field = "figure." + std::to_string(i);
      CheckName(figure.has_name() ? field + ".name" : field, figure.name());
      if (!names.insert(figure.name()).second) {
        Fail(field + ".name", "there are two figures \"" + figure.name() + "\"");
      }
      if (figure.kind() == Figure::MAP && figure.colour().empty()) {
        Fail(field, "a MAP needs `colour`, the column that it shows");
      }
      CheckColumns(field, figure);
      CheckSelection(field + ".net", "net", figure.net(), NetNames());
      CheckSelection(field + ".system", "system", figure.system(), SystemNames());
      CheckSelection(field + ".condition", "condition", figure.condition(), ConditionNames());
    }
  }

  void CheckColumns(const std::string& field, const Figure& figure) const {
    const Names columns(std::begin(kResultColumns), std::end(kResultColumns));
    CheckKnown(field + ".x", "column", figure.x(), columns);
    CheckKnown(field + ".y", "column", figure.y(), columns);
    CheckKnown(field + ".series", "column", figure.series(), columns);
    if (figure.has_panel()) CheckKnown(field + ".panel", "column", figure.panel(), columns);
    if (figure.has_colour()) CheckKnown(field + ".colour", "column", figure.colour(), columns);
  }

  template <typename List>
  void CheckSelection(const std::string& field, const std::string& what, const List& names,
                      const Names& known) const {
    ForEach(field, names, [&](const std::string& at, const std::string& name) {
      CheckKnown(at, what, name, known);
    });
  }

  const ExperimentFile& file_;
};

void AddKnownSystems(Experiment& experiment) {
  std::set<std::string> names;
  for (const System& system : experiment.system()) names.insert(system.name());
  for (const auto& [name, communication] : SimulatedPolicies()) {
    if (names.contains(name)) continue;
    System& system = *experiment.add_system();
    system.set_name(name);
    system.set_policy(name);
  }
}

}  // namespace

ExperimentFile ReadExperiment(const std::string& path) {
  ExperimentFile file;
  file.path = path;
  file.locations = ReadTextFile(path, file.experiment);
  Checker(file).Check();
  AddKnownSystems(file.experiment);
  return file;
}

}  // namespace poseidon
