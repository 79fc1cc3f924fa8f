// ServerControl: a server's control actor. Joins the job, makes the shards when a plan arrives;
// those of a later plan take the place of the others, and what the others hold is gone then.
//
// Where servers keep what goes back with the job after a loss, the lanes are held first, and it is
// told what they have; the shards of the next plan, which is of the same layout, take that over.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/trace.h"
#include "server/shard_actor.h"
#include "transport/actor.h"
#include "transport/membership/member.h"

namespace poseidon {

struct ServerOptions {
  MemberOptions member;
  Duration stall_deadline = Seconds(300);
  bool phantom = false;    // see ShardOptions
  Trace* trace = nullptr;  // outlives the actor; may be null
  // Told the iteration of each gradient that is taken; outlives the actor, may be null.
  std::atomic<int64_t>* iteration = nullptr;
};

// The application lane hears kJoined, kPlan once the shards' memory is there, and kEnd.
class ServerControl : public Actor {
 public:
  explicit ServerControl(ServerOptions options);
  void OnStart(Outbox& outbox) override;
  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

 private:
  void OnPlan(const Envelope& envelope, Outbox& outbox);
  void MakeShards(const wire::PlanAndModel& plan, Outbox& outbox);
  void OnHold(const Envelope& envelope, Outbox& outbox);
  void OnLaneHeld(const Envelope& envelope, Outbox& outbox);
  // Answers a hold, if no lane changes its shard any more.
  void TrySendHoldings(Outbox& outbox) const;
  // The shards of the present plan are there.
  void SendReady(Outbox& outbox) const;

  ServerOptions options_;
  Member member_;
  int lanes_ = 0;
  int plans_ = 0;  // one more than the present plan's number; 0 before there is one
  int layout_ = 0;
  std::vector<std::shared_ptr<ShardState>> shards_;  // of the present plan, by lane
  std::optional<uint32_t> hold_;                     // its number, from a hold to the next plan
  int running_lanes_ = 0;                            // that have not been held
};

}  // namespace poseidon
