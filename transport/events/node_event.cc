#include "transport/events/node_event.h"

#include <algorithm>
#include <bit>
#include <type_traits>

namespace poseidon {

std::string ActivityName(int32_t activity) {
  switch (static_cast<Activity>(activity)) {
    case Activity::kComputing:
      return "computing";
    case Activity::kWaiting:
      return "waiting";
    case Activity::kSnapshot:
      return "writing a snapshot";
    case Activity::kTesting:
      return "testing";
    case Activity::kPreparing:
      return "getting ready";
    case Activity::kFinishing:
      return "finishing";
  }
  return "activity " + std::to_string(activity);
}

NodeEvent FrameEvent(NodeEvent::Type type, Time time, const Envelope& envelope, const Address& peer,
                     uint64_t number) {
  NodeEvent event;
  event.time = time;
  event.number = number;
  event.iteration = envelope.iteration;
  event.bytes = static_cast<int64_t>(envelope.body.size());
  event.bucket = envelope.bucket;
  event.chunk = envelope.chunk;
  event.step = envelope.step;
  event.kind = static_cast<int32_t>(envelope.kind);
  event.rank = peer.node.rank;
  event.lane = static_cast<int16_t>(peer.lane);
  event.role = static_cast<uint8_t>(peer.node.role);
  event.type = type;
  return event;
}

EventRing::EventRing(size_t capacity)
    : mask_(std::bit_ceil(capacity) - 1), slots_(std::make_unique<Slot[]>(mask_ + 1)) {}

void EventRing::Add(const NodeEvent& event) {
  static_assert(std::has_unique_object_representations_v<NodeEvent>);
  const auto words = std::bit_cast<std::array<uint64_t, kWords>>(event);
  const uint64_t index = count_.load(std::memory_order_relaxed);
  Slot& slot = slots_[index & mask_];
  // Whoever reads one of these words sees the count of before, too.
  for (size_t i = 0; i < kWords; ++i) slot[i].store(words[i], std::memory_order_release);
  count_.store(index + 1, std::memory_order_release);
}

std::vector<NodeEvent> EventRing::Read() const {
  const uint64_t capacity = mask_ + 1;
  const uint64_t end = count();
  const uint64_t begin = end > capacity ? end - capacity : 0;
  std::vector<NodeEvent> events;
  events.reserve(end - begin);
  for (uint64_t index = begin; index < end; ++index) {
    std::array<uint64_t, kWords> words;
    const Slot& slot = slots_[index & mask_];
    for (size_t i = 0; i < kWords; ++i) words[i] = slot[i].load(std::memory_order_acquire);
    events.push_back(std::bit_cast<NodeEvent>(words));
  }
  // The event that follows the count may be half written, in the place of one that was read.
  const uint64_t oldest = count() >= capacity ? count() - capacity + 1 : 0;
  const uint64_t torn = end >= capacity && oldest > begin ? oldest - begin : 0;
  events.erase(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(
                                                    std::min<uint64_t>(torn, events.size())));
  return events;
}

}  // namespace poseidon
