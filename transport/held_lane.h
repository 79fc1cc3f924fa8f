// HeldLane: what takes the place of a data lane's actor when the job has lost a node: drops
// whatever comes, so that nobody touches the plan's memory any more (but a worker's training
// program), and tells the node's control lane when it is there.
#pragma once

#include <cstdint>

#include "transport/actor.h"

namespace poseidon {

class HeldLane : public Actor {
 public:
  // `hold` is the number of the hold that it belongs to.
  explicit HeldLane(uint32_t hold) : hold_(hold) {}
  void OnStart(Outbox& outbox) override {
    Envelope held;
    held.kind = MessageKind::kLaneHeld;
    held.to = Here(kControlLane);
    held.step = hold_;
    // Frames of the plan that is given up would keep those of the next one waiting.
    outbox.drop_queued = true;
    outbox.Send(std::move(held));
  }
  void OnMessage(const Envelope& envelope, Outbox& outbox) override {
    (void)envelope;
    (void)outbox;
  }

 private:
  uint32_t hold_;
};

}  // namespace poseidon
