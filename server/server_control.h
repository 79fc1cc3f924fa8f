// ServerControl: a server's control actor. Joins the job, makes the shards when a plan arrives;
// those of a later plan take the place of the others, and what the others hold is gone then.
#pragma once

#include <atomic>
#include <cstdint>

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
  // The shards of the present plan are there.
  void SendReady(Outbox& outbox) const;

  ServerOptions options_;
  Member member_;
  int lanes_ = 0;
  int plans_ = 0;  // one more than the present plan's number; 0 before there is one
};

}  // namespace poseidon
