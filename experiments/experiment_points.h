// The points of an experiment: every combination that its sweeps ask for. Functions without state.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "experiments/experiment_file.h"
#include "experiments/experiment_point.h"

namespace poseidon {

// A net of the experiment, as whoever can read nets has read it.
struct ExperimentModel {
  ModelSpec model;  // of one device: `batch` is a device's
  // Of the machine that a profile was measured on; counts where the file says none.
  std::optional<Disturbance> disturbance;
  // What a device does that trains the net's images_per_second; counts where the file says no
  // cluster.flops.
  std::optional<double> flops = {};
  // For a net that is really trained: the solver's path and the settings to train it with.
  std::optional<Training> training;
  // Then, all that its files say: what tells one training from another.
  std::string solver;
};

// In the file's order, each once. `models` has every net that a sweep uses, by name. Throws
// ConfigError, which names sweep and point, for a combination that can't be (proto/job_config.h).
std::vector<ExperimentPoint> PointsOf(const ExperimentFile& file,
                                      const std::map<std::string, ExperimentModel>& models);

// As results and figures call the sweep at this place of the file.
std::string NameOfSweep(const Experiment& experiment, int place);

// Names of the nets that the sweeps use.
std::vector<std::string> UsedNets(const Experiment& experiment);

// Equal for points that are the same in everything that can change their result: 16 hexadecimal
// digits, a file's name.
std::string KeyOf(const ExperimentPoint& point, ExperimentMode mode);

// For people: "VGG19, wfbp, 8 workers, 10Gbps".
std::string Describe(const ExperimentPoint& point);

struct PublishedValue {
  double speedup = 0;
  bool fitted = false;
  std::string source;
};
// The first in the file that is for this point.
std::optional<PublishedValue> PublishedFor(const Experiment& experiment,
                                           const ExperimentPoint& point);

}  // namespace poseidon
