// Reads experiment files (proto/experiment.proto). Functions without state.
#pragma once

#include <string>

#include "proto/experiment.pb.h"
#include "proto/text_format.h"

namespace poseidon {

struct ExperimentFile {
  Experiment experiment;
  std::string path;
  TextLocations locations;

  // Where a field stands ("sweep.0.system.1").
  Location Where(const std::string& field) const { return locations.Find(experiment, field); }
};

// Throws ConfigError with file, line and column for what is not as the schema says: names that are
// missing, empty or given twice, nets and systems that nobody describes, numbers out of range.
// Systems that every experiment knows stand in the result as if the file had them.
ExperimentFile ReadExperiment(const std::string& path);

}  // namespace poseidon
