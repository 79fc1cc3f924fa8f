// The checks of a job beyond its syntax. They throw ConfigError that names the field, with its
// place in the file that `locations` knows, if it knows one.
#pragma once

#include "proto/job.pb.h"
#include "proto/text_format.h"

namespace poseidon {

// Values out of range, and combinations that can't work (proto/compatibility.h).
void CheckClusterAndCommunication(const Job& job, const TextLocations& locations);
// One line.
void CheckName(const Job& job, const TextLocations& locations);
// A port that there is and that is not the scheduler's for nodes, and a token where others than
// this machine's programs may ask.
void CheckMonitor(const Job& job, const TextLocations& locations);
// Values out of range, and an engine that can't do what is asked of it.
void CheckTraining(const Job& job, const TextLocations& locations);

}  // namespace poseidon
