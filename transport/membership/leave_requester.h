// LeaveRequester: asks a job's scheduler, from outside of the job, to let a worker leave it.
//
//     ZmqRuntime runtime({Role::kWorker, -1}, NodeZmqOptions(job, host));
//     runtime.Attach(kControlLane, std::make_unique<LeaveRequester>(request, endpoint, deadline));
//     runtime.Start();
//     wire::End answer;  // of the kEnd that comes to the mailbox
#pragma once

#include <string>

#include "core/time.h"
#include "proto/wire.pb.h"
#include "transport/actor.h"

namespace poseidon {

// The control lane's actor of a process that is no node of the job. The application gets one kEnd
// with a wire::End: the scheduler's answer, code 0 if the worker is about to leave; or
// kDeadlineExceeded if there was none.
class LeaveRequester : public Actor {
 public:
  // `request.from()` has this process's endpoints; `scheduler` is the endpoint of the scheduler's
  // control lane.
  LeaveRequester(wire::LeaveRequest request, std::string scheduler, Duration deadline);
  void OnStart(Outbox& outbox) override;
  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

 private:
  void Ask(Outbox& outbox) const;
  void Tell(const wire::End& end, Outbox& outbox);

  wire::LeaveRequest request_;
  std::string scheduler_;
  Duration deadline_;
  Time begun_{};
  bool told_ = false;
};

}  // namespace poseidon
