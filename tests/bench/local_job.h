// A job whose nodes are processes of one benchmark, on this machine.
#pragma once

#include <glog/logging.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <utility>

#include "core/time.h"
#include "scheduler/scheduler_actor.h"
#include "transport/membership/node_setup.h"
#include "transport/zmq/zmq_runtime.h"

namespace poseidon {

// The next message of this kind to the application; others before it are passed over. Ends the
// benchmark if the job ends first, or is silent for longer than any step of one takes.
inline Envelope AwaitEnvelope(ZmqRuntime& runtime, MessageKind kind) {
  while (true) {
    std::optional<Envelope> envelope = runtime.mailbox().Take(Seconds(120));
    CHECK(envelope) << "no " << KindName(kind);
    if (envelope->kind == kind) return std::move(*envelope);
    CHECK(envelope->kind != MessageKind::kEnd) << "the job ended early";
  }
}

// What says that the first iteration has ended, from one process to another.
class Signal {
 public:
  Signal() { PCHECK(pipe(ends_) == 0); }

  void Send() const { PCHECK(write(ends_[1], "", 1) == 1); }

  void Await() const {
    char byte = 0;
    PCHECK(read(ends_[0], &byte, 1) == 1);
  }

 private:
  int ends_[2];  // closed when the benchmark ends
};

// Is the job's scheduler, at the port that it names, until the job ends.
inline void RunScheduler(const Job& job) {
  ZmqOptions options;
  options.control_port = job.cluster().scheduler_port();
  options.heartbeat_port = options.control_port + 1;
  ZmqRuntime runtime({Role::kScheduler, 0}, options);
  SchedulerOptions actor;
  actor.job = job;
  actor.epoch = DrawRandom();
  runtime.Attach(kControlLane, MakeScheduler(std::move(actor)));
  runtime.Start();
  AwaitEnvelope(runtime, MessageKind::kEnd);
  runtime.Stop();
}

}  // namespace poseidon
