// TimelineRecorder: when things happened in one iteration and its exchange, for whoever watches the
// job; about once a second, so that an iteration's report stays small.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "client/bucket_progress.h"
#include "core/time.h"
#include "proto/wire.pb.h"

namespace poseidon {

// A value; the training thread's.
//
//   TimelineRecorder recorder;
//   recorder.Wait(layer, begin, end);  // in a forward pass
//   if (auto timeline = recorder.EndIteration({iteration, begin, now}, plan, buckets)) ...
class TimelineRecorder {
 public:
  struct Iteration {
    int64_t number = -1;
    Time begin{};
    Time end{};
  };

  // In the present iteration's forward pass computing has stood still for the layer.
  void Wait(int layer, Time begin, Time end) { waits_.push_back({layer, begin, end}); }
  // The iteration's gradients are all ready. Gives the timeline of the iteration before, whose
  // exchange is over by now, if one is due and all of its times are known: not for the first
  // iterations of a plan, nor with staleness where a bucket has not come yet.
  std::optional<wire::IterationTimeline> EndIteration(const Iteration& iteration, int32_t plan,
                                                      const BucketProgress& buckets);

 private:
  struct LayerWait {
    int layer = 0;
    Time begin{};
    Time end{};
  };

  std::optional<wire::IterationTimeline> Describe(int32_t plan,
                                                  const BucketProgress& buckets) const;

  Iteration before_;
  std::vector<LayerWait> waits_before_;
  std::vector<LayerWait> waits_;  // of the present iteration
  Time next_{};                   // when another timeline is due
};

}  // namespace poseidon
