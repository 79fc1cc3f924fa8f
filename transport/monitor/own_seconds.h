// What of an iteration is a worker's own: it computed, or waited for its data, and did not stand
// still for others, test, or write a snapshot. A pure function.
#pragma once

#include <algorithm>

#include "proto/wire.pb.h"

namespace poseidon {

inline double ComputeSeconds(const wire::Progress& progress) {
  return std::max(0.0, progress.iteration_seconds() - progress.data_seconds() -
                           progress.exposed_seconds() - progress.beside_seconds());
}

inline double OwnSeconds(const wire::Progress& progress) {
  return ComputeSeconds(progress) + progress.data_seconds();
}

}  // namespace poseidon
