#include "transport/membership/leave_requester.h"

#include <utility>

#include "transport/membership/member.h"

namespace poseidon {
namespace {

constexpr TimerId kAskAgain = 1;
// A scheduler that another one takes the place of has not kept the question.
constexpr Duration kInterval = Seconds(1);

const Address kSchedulerControl{{Role::kScheduler, 0}, kControlLane};

}  // namespace

LeaveRequester::LeaveRequester(wire::LeaveRequest request, std::string scheduler, Duration deadline)
    : request_(std::move(request)), scheduler_(std::move(scheduler)), deadline_(deadline) {}

void LeaveRequester::OnStart(Outbox& outbox) {
  begun_ = outbox.now;
  outbox.routes.push_back({kSchedulerControl, scheduler_});
  Ask(outbox);
}

void LeaveRequester::Ask(Outbox& outbox) const {
  outbox.Send(MakeEnvelope(MessageKind::kLeave, kSchedulerControl, request_));
  outbox.SetTimer(kAskAgain, kInterval);
}

void LeaveRequester::OnTimer(TimerId, Outbox& outbox) {
  if (told_) return;
  if (outbox.now - begun_ < deadline_) return Ask(outbox);
  Tell(MakeEnd(ExitCode::kDeadlineExceeded,
               "no scheduler has answered at " + scheduler_ + " within " +
                   std::to_string(static_cast<int>(ToSeconds(deadline_))) +
                   " s; does the job run, is that its scheduler's address, and is the key that of "
                   "the job? Of a job of `poseidon run`, job.prototxt in its output directory says "
                   "both"),
       outbox);
}

void LeaveRequester::OnMessage(const Envelope& envelope, Outbox& outbox) {
  wire::End end;
  if (envelope.kind != MessageKind::kLeave || !end.ParseFromString(envelope.body.ToString())) {
    return;
  }
  Tell(end, outbox);
}

void LeaveRequester::Tell(const wire::End& end, Outbox& outbox) {
  if (std::exchange(told_, true)) return;
  outbox.Send(MakeEnvelope(MessageKind::kEnd, Here(kApplicationLane), end));
}

}  // namespace poseidon
