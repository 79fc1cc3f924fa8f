#include "simulation/failures/snapshot_restarts.h"

#include <cmath>

namespace poseidon {

double BestInterval(const SnapshotRestarts& restarts) {
  const double ratio = restarts.write / (2 * restarts.mtbf);
  if (ratio >= 1) return restarts.mtbf;
  return std::sqrt(2 * restarts.write * restarts.mtbf) * (1 + std::sqrt(ratio) / 3 + ratio / 9) -
         restarts.write;
}

double GoodputOfRestarts(const SnapshotRestarts& restarts, double interval) {
  // Of M e^(R/M) (e^((interval + write)/M) - 1), the time that `interval` of training takes.
  const double mean = restarts.mtbf;
  return interval / mean * std::exp(-restarts.restart / mean) /
         std::expm1((interval + restarts.write) / mean);
}

}  // namespace poseidon
