// How long a worker's program waits for what others do before it gives up. Somebody else's deadline
// comes first and names the culprit: the scheduler's, or those of the lanes. These are for when
// nobody did.
//
//   HandleWhile(waiting, SteadyNow() + patience.Stall(), "the servers' optimizer state");
//
// Pure functions of the job config; thread-safe.
#pragma once

#include "core/time.h"
#include "proto/job.pb.h"

namespace poseidon {

class SessionPatience {
 public:
  explicit SessionPatience(const Job& job);

  // Until all nodes of the job are there. For ever in a job that recovers: its spares wait until
  // somebody is lost, and the control actor notices when there is no scheduler any more.
  Duration ForAllToJoin() const { return all_to_join_; }
  // Until all nodes have done something before training.
  Duration Join() const { return join_; }
  // Until all workers have done something in training.
  Duration Stall() const { return stall_; }
  // Until all workers have paused.
  Duration Pause() const { return pause_; }
  // Until the job goes on after a loss.
  Duration Recovery() const { return join_ + stall_; }

 private:
  Duration join_{};
  Duration stall_{};
  Duration pause_{};
  Duration all_to_join_{};
};

}  // namespace poseidon
