#include "scheduler/nic_model.h"

#include <cmath>

namespace poseidon {

NicModel::NicModel(int machines, double goodput_bytes_per_second, int64_t latency, bool looped)
    : nanoseconds_per_byte_(1e9 / goodput_bytes_per_second),
      latency_(latency),
      looped_(looped),
      machines_(machines) {}

void NicModel::Send(const Frame& frame) {
  const uint32_t index = Keep(frame);
  if (frame.from == frame.to && !looped_) {
    return Push(now_ + frame.processing, EventKind::kArrives, index);
  }
  Machine& sender = machines_[frame.from];
  sender.egress.push({frame.priority, index, order_++});
  if (sender.egress_waking) return;
  if (sender.egress_free <= now_) return StartEgress(frame.from);
  sender.egress_waking = true;
  Push(sender.egress_free, EventKind::kEgressFree, frame.from);
}

void NicModel::SetTimer(int64_t delay, const Frame& frame) {
  Push(now_ + delay, EventKind::kArrives, Keep(frame));
}

std::optional<Frame> NicModel::Next() {
  while (!events_.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    switch (event.kind) {
      case EventKind::kEgressFree:
        machines_[event.subject].egress_waking = false;
        StartEgress(event.subject);
        break;
      case EventKind::kReachesIngress:
        ReachIngress(event.subject);
        break;
      case EventKind::kLeavesIngress: {
        Machine& receiver = machines_[event.subject];
        const uint32_t passed = receiver.ingress.front();
        receiver.ingress.pop_front();
        if (!receiver.ingress.empty()) StartIngress(event.subject);
        const int64_t processing = frames_[passed].processing;
        if (processing == 0) return Take(passed);
        Push(now_ + processing, EventKind::kArrives, passed);
        break;
      }
      case EventKind::kArrives:
        return Take(event.subject);
    }
  }
  return std::nullopt;
}

uint32_t NicModel::Keep(const Frame& frame) {
  if (free_.empty()) {
    frames_.push_back(frame);
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
  events_.push({time, order_++, kind, subject});
}

int64_t NicModel::TransferTime(int64_t bytes) const {
  return static_cast<int64_t>(std::ceil(static_cast<double>(bytes) * nanoseconds_per_byte_));
}

void NicModel::StartEgress(uint32_t machine) {
  Machine& sender = machines_[machine];
  const uint32_t index = sender.egress.top().frame;
  sender.egress.pop();
  sender.egress_free = now_ + TransferTime(frames_[index].bytes);
  frames_[index].left = sender.egress_free;
  Push(now_ + latency_, EventKind::kReachesIngress, index);
  if (sender.egress.empty()) return;
  sender.egress_waking = true;
  Push(sender.egress_free, EventKind::kEgressFree, machine);
}

void NicModel::ReachIngress(uint32_t frame) {
  const uint32_t machine = frames_[frame].to;
  machines_[machine].ingress.push_back(frame);
  if (machines_[machine].ingress.size() == 1) StartIngress(machine);
}

void NicModel::StartIngress(uint32_t machine) {
  Push(now_ + TransferTime(frames_[machines_[machine].ingress.front()].bytes),
       EventKind::kLeavesIngress, machine);
}

}  // namespace poseidon
