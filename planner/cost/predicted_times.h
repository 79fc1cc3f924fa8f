// What a prediction says of one iteration. All times are seconds.
#pragma once

#include <vector>

namespace poseidon {

// Seconds from the start of the iteration's forward pass.
struct BucketTimes {
  double exchange = 0;  // from ready to fresh, mean over workers
  double ready = 0;     // mean over workers
  double sent = 0;      // by the last node
  double fresh = 0;     // mean over workers
  double needed = 0;    // mean over workers; the next forward pass wants it
};

struct PredictedTimes {
  double seconds = 0;
  std::vector<BucketTimes> buckets;
};

}  // namespace poseidon
