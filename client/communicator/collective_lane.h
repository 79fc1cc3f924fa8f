// CollectiveLane: one lane's part of a Communicator's calls: of each, the chunks whose index modulo
// the number of lanes is the lane's.
#pragma once

#include <cstdint>
#include <vector>

#include "client/communicator/collective_call.h"
#include "client/sync/schedule_runner.h"
#include "transport/actor.h"

namespace poseidon {

// An actor. A kGradientReady of the application begins the call; when the lane's chunks are done
// the application gets a kBucketFresh with the call's number, and the floats are still leased to
// the frames that have not left. Frames of later calls wait for theirs; a kRegister of this node
// drops those of the rank that is its chunk, of which another process has come.
//
// Throws ProtocolError naming a rank that made another call than this one.
class CollectiveLane : public Actor {
 public:
  // `call` is written by the application, but not between a kGradientReady and its kBucketFresh.
  CollectiveLane(const CollectiveCall& call, int rank, int workers, int lane, int lanes);

  void OnMessage(const Envelope& envelope, Outbox& outbox) override;

 private:
  struct Part {
    uint32_t chunk = 0;
    ScheduleRunner runner;
  };

  void BeginCall(Outbox& outbox);
  void Receive(const Envelope& envelope, Outbox& outbox);
  // A frame of the call that is under way.
  void Take(const Envelope& envelope, Outbox& outbox);
  // Begins chunks, in their order, while few enough are under way; tells the application when all
  // are done.
  void Proceed(Outbox& outbox);
  void SendFrames(const Part& part, Outbox& outbox);

  const CollectiveCall& call_;
  const int rank_;
  const int workers_;
  const int lane_;  // of the data lanes, from 0
  const int lanes_;
  int64_t number_ = 0;  // of the call under way or, if there are no parts, of the last one
  std::vector<Part> parts_;
  size_t begun_ = 0;
  size_t finished_ = 0;
  std::vector<Envelope> early_;      // frames of calls that this rank has not made yet
  std::vector<ReduceFrame> frames_;  // kept for its memory
};

}  // namespace poseidon
