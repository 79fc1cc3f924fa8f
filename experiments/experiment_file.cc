#include "experiments/experiment_file.h"

#include <glog/logging.h>

#include <set>

#include "experiments/experiment_check.h"
#include "planner/policies.h"
#include "proto/text_format.h"

namespace poseidon {
namespace {

void AddKnownSystems(Experiment& experiment) {
  std::set<std::string> names;
  for (const System& system : experiment.system()) names.insert(system.name());
  for (const auto& [policy, communication] : SimulatedPolicies()) {
    for (const std::string& name : {SystemOf(policy), policy}) {
      if (!names.insert(name).second) continue;
      System& system = *experiment.add_system();
      system.set_name(name);
      system.set_policy(policy);
    }
  }
}

// From here on policies have the names that results have.
void RenamePolicies(const std::string& path, Experiment& experiment) {
  for (System& system : *experiment.mutable_system()) {
    const std::string policy = FindPolicy(SimulatedPolicies(), system.policy())->first;
    if (const std::string renamed = RenamingOf(system.policy(), policy); !renamed.empty()) {
      LOG(WARNING) << path << ": system \"" << system.name() << "\": policy " << renamed;
    }
    system.set_policy(policy);
  }
}

}  // namespace

ExperimentFile ReadExperiment(const std::string& path) {
  ExperimentFile file;
  file.path = path;
  file.locations = ReadTextFile(path, file.experiment);
  CheckExperiment(file);
  RenamePolicies(path, file.experiment);
  AddKnownSystems(file.experiment);
  return file;
}

}  // namespace poseidon
