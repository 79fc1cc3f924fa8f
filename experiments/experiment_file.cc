#include "experiments/experiment_file.h"

#include <set>

#include "experiments/experiment_check.h"
#include "planner/policies.h"
#include "proto/text_format.h"

namespace poseidon {
namespace {

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
  CheckExperiment(file);
  AddKnownSystems(file.experiment);
  return file;
}

}  // namespace poseidon
