#include "planner/cost/nic_model.h"

#include <algorithm>
#include <cmath>

namespace poseidon {
namespace {

constexpr int64_t kTurn = 1'000'000;  // as SimRuntime's, in nanoseconds

}  // namespace

NicModel::NicModel(const NicModelOptions& options)
    : options_(options),
      lanes_(size_t{2} * options.goodput_bytes_per_second.size() * options.lanes) {
  for (const double goodput : options.goodput_bytes_per_second) {
    machines_.emplace_back(goodput, options.send_buffer_bytes);
  }
}

uint64_t NicModel::LaneOf(int machine, bool server, int lane) const {
  return static_cast<uint64_t>(2 * machine + (server ? 1 : 0)) * options_.lanes + lane;
}

int64_t NicModel::Handled(const Frame& frame) {
  int64_t& free = lanes_[LaneOf(frame.to, frame.to_server, frame.lane)].free;
  free = std::max(free, now_) + options_.message_cost + frame.processing;
  if (options_.further_processing) free += options_.further_processing(frame);
  return free;
}

void NicModel::Send(const Frame& frame) {
  const uint32_t index = Keep(frame);
  if (frame.from == frame.to && !options_.representative) {
    return Push(Handled(frame), EventKind::kArrives, index);
  }
  const uint64_t connection = LaneOf(frame.to, frame.to_server, frame.lane) * 2;
  machines_[frame.from].egress.Push(index, frame.priority, connection + (frame.from_server ? 1 : 0),
                                    frame.bytes, now_);
  BeginLeaving(frame.from);
  WakeEgress(frame.from);
}

void NicModel::SetTimer(int64_t delay, const Frame& frame) {
  Push(now_ + delay, EventKind::kArrives, Keep(frame));
}

void NicModel::Post(const Frame& frame) {
  int64_t& free = lanes_[LaneOf(frame.to, frame.to_server, frame.lane)].free;
  const int64_t done = std::max(free, now_) + frame.processing;
  if (frame.processing > 0) free = done;
  Push(done, EventKind::kArrives, Keep(frame));
}

void NicModel::Work(int64_t duration, const Frame& frame) {
  const auto lane = static_cast<uint32_t>(LaneOf(frame.to, frame.to_server, frame.lane));
  lanes_[lane].work.emplace(frame.priority, std::make_pair(duration, frame));
  if (lanes_[lane].turn == 0) QueueTurn(lane);
}

void NicModel::QueueTurn(uint32_t index) {
  Lane& lane = lanes_[index];
  lane.turn = std::clamp<int64_t>(lane.work.begin()->second.first, 1, kTurn);
  lane.free = std::max(lane.free, now_) + lane.turn;
  Push(lane.free, EventKind::kWorked, index);
}

std::optional<Frame> NicModel::EndTurn(uint32_t index) {
  Lane& lane = lanes_[index];
  const auto first = lane.work.begin();
  first->second.first -= std::exchange(lane.turn, 0);
  std::optional<Frame> done;
  if (first->second.first <= 0) {
    done = first->second.second;
    lane.work.erase(first);
  }
  if (!lane.work.empty()) QueueTurn(index);
  return done;
}

std::optional<Frame> NicModel::Next() {
  while (!events_.empty()) {
    const Event event = events_.Pop();
    now_ = event.time;
    switch (event.kind) {
      case EventKind::kEgressLeft:
        OnEgressLeft(event.subject);
        break;
      case EventKind::kLeavesIngress: {
        const int64_t handled = Handled(frames_[event.subject]);
        if (handled == now_) return Take(event.subject);
        Push(handled, EventKind::kArrives, event.subject);
        break;
      }
      case EventKind::kArrives:
        return Take(event.subject);
      case EventKind::kWorked:
        if (std::optional<Frame> done = EndTurn(event.subject)) return done;
        break;
    }
  }
  return std::nullopt;
}

uint32_t NicModel::Keep(const Frame& frame) {
  if (free_.empty()) {
    frames_.push_back(frame);
    passed_.push_back(0);
    return static_cast<uint32_t>(frames_.size() - 1);
  }
  const uint32_t index = free_.back();
  free_.pop_back();
  frames_[index] = frame;
  return index;
}

Frame NicModel::Take(uint32_t index) {
  free_.push_back(index);
  return frames_[index];
}

void NicModel::Push(int64_t time, EventKind kind, uint32_t subject) {
  Event event{.time = time, .order = order_++, .kind = kind};
  event.subject = subject;
  events_.Push(event);
}

int64_t NicModel::TransferTime(int64_t bytes, const Machine& machine) {
  return static_cast<int64_t>(std::ceil(static_cast<double>(bytes) * machine.nanoseconds_per_byte));
}

void NicModel::BeginLeaving(uint32_t machine) {
  while (const std::optional<uint32_t> begun = machines_[machine].egress.NextBegun()) {
    const Frame& frame = frames_[*begun];
    // All have the same latency, so what begins later can't reach the receiver before this.
    Machine& receiver = machines_[frame.to];
    receiver.ingress_free = std::max(receiver.ingress_free, now_ + options_.latency) +
                            TransferTime(frame.bytes, receiver);
    passed_[*begun] = receiver.ingress_free;
  }
}

void NicModel::WakeEgress(uint32_t machine) {
  Machine& sender = machines_[machine];
  const int64_t next = sender.egress.NextLeft();
  if (next >= sender.egress_wakes) return;
  sender.egress_wakes = next;
  Push(next, EventKind::kEgressLeft, machine);
}

void NicModel::OnEgressLeft(uint32_t machine) {
  Machine& sender = machines_[machine];
  if (sender.egress_wakes != now_) return;  // an earlier one came after it
  sender.egress_wakes = SimEgress::kNever;
  while (const std::optional<uint32_t> index = sender.egress.PopLeft(now_)) {
    frames_[*index].left = now_;
    Push(std::max(passed_[*index], now_ + options_.latency), EventKind::kLeavesIngress, *index);
    BeginLeaving(machine);
  }
  WakeEgress(machine);
}

}  // namespace poseidon
