// The flag --deviations: machines that are not as the others.
//
//   ParseDeviations("3:2x,5:1Gbps,3:25Gbps")  // worker 3 computes for twice as long, and its link
//                                             // carries 25 Gb/s; that of worker 5 carries 1 Gb/s
#pragma once

#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace poseidon {

// One of each worker that is named. Throws ConfigError where an entry is neither WORKER:FACTORx nor
// WORKER:RATE, or says something twice; CheckClusterAndCommunication says whether the values make
// sense. Thread-safe.
std::vector<Deviation> ParseDeviations(const std::string& text);

}  // namespace poseidon
