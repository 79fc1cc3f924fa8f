// BucketProgress: what the training thread knows of the buckets: which have all their layers'
// gradients, up to which iteration each one's parameters are there (put together from what its
// lanes report), and how long exchanges took.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/time.h"
#include "proto/model.pb.h"
#include "proto/wire.pb.h"

namespace poseidon {

// How many lanes have a part of a bucket: that many kBucketFresh make it fresh.
int PartsOfBucket(const Plan& plan, int bucket);

// A value; one thread at a time.
class BucketProgress {
 public:
  // `waits_for_all`: IsFresh of a layer waits for all of them, where the plan says so. A program
  // that makes the updates itself decides itself what it waits for.
  explicit BucketProgress(const Plan& plan, bool waits_for_all = true);

  // The layer's gradient of the current iteration is in its buffer. Returns the buckets whose
  // gradients are to be sent now: none while other layers of the bucket are missing, and without
  // overlap none but with the last layer of all, when it is all buckets, in the order in which
  // they would have been ready.
  std::vector<int> LayerReady(int layer, Time now);
  // A lane's part of `bucket` has the values for the forward pass of `iteration`. True if with it
  // the whole bucket has.
  bool Report(int bucket, int64_t iteration, Time happened);
  // Whether the layer may be used in the forward pass of `iteration`: its parameters are there, and
  // without overlap all other layers' are, too.
  bool IsFresh(int layer, int64_t iteration) const;
  // Whether no layer's exchange of an iteration ends for the program before all layers' gradients
  // are ready.
  bool ends_together() const { return no_overlap_ || wait_for_all_; }
  // The bucket that the layer is in.
  int bucket(int layer) const { return bucket_of_layer_[layer]; }

  // When the bucket's exchange of the iteration's gradients began and ended; nothing of those that
  // are not over, and of all but the last two that are.
  struct Exchange {
    Time ready{};
    Time fresh{};
  };
  std::optional<Exchange> FindExchange(int bucket, int64_t iteration) const;
  int buckets() const { return static_cast<int>(buckets_.size()); }

  // Adds to the report's last buckets, which are this plan's, how long the exchanges took, from
  // ready to fresh, without the first: in that connections are made.
  void AddTimes(wire::WorkerReport& report) const;

 private:
  struct Bucket {
    int parts = 0;
    int layers = 0;
    int64_t fresh = 0;
    int reported = 0;      // parts that have reported fresh + 1
    int layers_ready = 0;  // of the current iteration
    Time ready{};
    Duration exchange{};
    int64_t exchanges = 0;
    std::array<Exchange, 2> last;  // by iteration, modulo 2
  };

  bool no_overlap_;
  bool wait_for_all_;
  int64_t start_;  // the plan's first iteration
  std::vector<Bucket> buckets_;
  std::vector<int> bucket_of_layer_;
  std::vector<int> held_back_;  // without overlap: complete buckets that have not been handed out
};

}  // namespace poseidon
