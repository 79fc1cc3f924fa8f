#include "client/timeline_recorder.h"

#include <utility>

namespace poseidon {
namespace {

// As often as somebody who watches can take it in.
constexpr Duration kInterval = Seconds(1);

double Milliseconds(Duration duration) { return 1000 * ToSeconds(duration); }

}  // namespace

std::optional<wire::IterationTimeline> TimelineRecorder::EndIteration(
    const Iteration& iteration, int32_t plan, const BucketProgress& buckets) {
  std::optional<wire::IterationTimeline> timeline;
  const bool follows = before_.number >= 0 && iteration.number == before_.number + 1;
  if (follows && iteration.end >= next_) timeline = Describe(plan, buckets);
  if (timeline) next_ = iteration.end + kInterval;
  before_ = iteration;
  waits_before_ = std::exchange(waits_, {});
  return timeline;
}

std::optional<wire::IterationTimeline> TimelineRecorder::Describe(
    int32_t plan, const BucketProgress& buckets) const {
  wire::IterationTimeline timeline;
  timeline.set_iteration(before_.number);
  timeline.set_plan(plan);
  timeline.set_duration_ms(Milliseconds(before_.end - before_.begin));
  for (int b = 0; b < buckets.buckets(); ++b) {
    const auto exchange = buckets.FindExchange(b, before_.number);
    if (!exchange) return std::nullopt;
    wire::BucketTimes& times = *timeline.add_buckets();
    times.set_ready_ms(Milliseconds(exchange->ready - before_.begin));
    times.set_fresh_ms(Milliseconds(exchange->fresh - before_.begin));
  }
  for (const std::vector<LayerWait>* waits : {&waits_before_, &waits_}) {
    for (const LayerWait& waited : *waits) {
      wire::LayerWait& wait = *timeline.add_waits();
      wait.set_layer(waited.layer);
      wait.set_begin_ms(Milliseconds(waited.begin - before_.begin));
      wait.set_end_ms(Milliseconds(waited.end - before_.begin));
    }
  }
  return timeline;
}

}  // namespace poseidon
