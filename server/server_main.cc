// poseidon_server: the parameter server daemon.
#include <gflags/gflags.h>
#include <glog/logging.h>

#include <atomic>
#include <optional>

#include "core/arithmetic/blas_core.h"
#include "core/end_deadline.h"
#include "core/error.h"
#include "core/files/directories.h"
#include "core/own_flags.h"
#include "core/program.h"
#include "proto/job_config.h"
#include "server/server_control.h"
#include "transport/membership/event_writer.h"
#include "transport/membership/node_setup.h"
#include "transport/monitor/node_monitor.h"
#include "transport/zmq/zmq_runtime.h"

DEFINE_string(config, "",
              "The job config (docs/configuration.md); the same for all nodes. Of a job that "
              "`poseidon run` has started: job.prototxt in its output directory.");
DEFINE_int32(rank, -1, "This server's rank, from 0; -1 takes whichever is free.");
DEFINE_string(host, "",
              "Address at which other nodes reach this machine; empty: that of the interface which "
              "leads to the scheduler.");
DEFINE_uint64(incarnation, 0,
              "Number of this process, which no other of the job has; 0 draws one.");
DEFINE_uint64(
    replaces, 0,
    "In a job with `recovery`: the --incarnation of the dead process whose place this one "
    "takes, at once; 0: none is known to be dead.");
DEFINE_string(out, "",
              "Directory for server-RANK.trace.json, if the config wants a trace, and "
              "server-RANK.events.json, "
              "if it does or the job ends badly; made if it is not there.");

namespace poseidon {
namespace {

constexpr char kProgram[] = "poseidon_server";

// How often the loop looks for a signal.
constexpr Duration kTick = std::chrono::milliseconds(100);
// Some hundred chunks an iteration, and the last few dozen iterations.
constexpr size_t kTraceEvents = 100000;

// Waits for the job's end; returns why.
wire::End Serve(ZmqRuntime& runtime, EventWriter& events, Trace& trace, std::string& name,
                std::atomic<int>& rank, Interruption& interruption) {
  uint64_t epoch = 0;
  while (true) {
    if (interruption.Pending()) {
      Envelope failed = MakeEnvelope(MessageKind::kFailed, {{Role::kScheduler, 0}, kControlLane},
                                     MakeEnd(ExitCode::kInterrupted, "interrupted by a signal"));
      failed.epoch = epoch;
      runtime.Post(std::move(failed));
      events.Write(ExitCode::kInterrupted, "interrupted by a signal");
      throw Interrupted();
    }
    const std::optional<Envelope> envelope = runtime.mailbox().Take(kTick);
    if (!envelope) continue;
    if (envelope->kind == MessageKind::kJoined) {
      wire::View view;
      view.ParseFromString(envelope->body.ToString());
      epoch = view.epoch();
      rank = view.your_rank();
      name = "server-" + std::to_string(view.your_rank());
      trace.set_process("server " + std::to_string(view.your_rank()));
      LOG(INFO) << "joined as server " << view.your_rank();
    } else if (envelope->kind == MessageKind::kPlan) {
      LOG(INFO) << "ready";
    } else if (envelope->kind == MessageKind::kEnd) {
      wire::End end;
      end.ParseFromString(envelope->body.ToString());
      return end;
    } else if (envelope->kind == MessageKind::kFailed) {
      wire::End end;
      end.ParseFromString(envelope->body.ToString());
      Envelope failed = *envelope;
      failed.to = {{Role::kScheduler, 0}, kControlLane};
      failed.epoch = epoch;
      runtime.Post(std::move(failed));
      return end;
    }
  }
}

ExitCode Run() {
  const JobConfig config = ReadJobConfig(FLAGS_config);
  if (!FLAGS_out.empty()) MakeDirectories(FLAGS_out);
  Interruption interruption;
  AwaitSchedulerName(config.job.cluster(), [&] {
    if (interruption.Pending()) throw Interrupted();
  });
  const std::string host =
      FLAGS_host.empty() ? FindPublicHost(config.job.cluster().scheduler_host()) : FLAGS_host;
  Trace trace("server", kTraceEvents);
  const bool tracing = config.job.training().trace() && !FLAGS_out.empty();

  std::atomic<int> rank{-1};
  std::atomic<int64_t> iteration{0};
  EndDeadline end_deadline(kProgram);
  const ZmqOptions sockets = NodeZmqOptions(config.job, host);
  ClaimFilesOf(config.job, sockets.data_lanes);
  ZmqRuntime runtime({Role::kServer, -1}, sockets);
  ServerOptions options;
  options.member =
      NodeMemberOptions(config.job, config.fingerprint, Role::kServer, FLAGS_rank, host, runtime);
  if (FLAGS_incarnation != 0) options.member.incarnation = FLAGS_incarnation;
  options.member.replaces = FLAGS_replaces;
  options.stall_deadline = StallDeadline(config.job);
  options.trace = tracing ? &trace : nullptr;
  options.iteration = &iteration;
  runtime.Attach(kControlLane, std::make_unique<ServerControl>(std::move(options)));
  const auto events = std::make_shared<EventWriter>(
      runtime, host, FLAGS_out, [&end_deadline](const Error& error) { end_deadline.Start(error); });
  runtime.Observe([events](const Envelope& envelope) { events->Observe(envelope); });
  std::optional<NodeMonitor> monitor;
  if (config.job.monitor().has_node_port()) {
    monitor.emplace(config.job.monitor(),
                    NodeMonitor::Shown{Role::kServer, rank, iteration, runtime.counters()});
    LOG(INFO) << "metrics: " << monitor->url();
  }
  runtime.Start();

  std::string name;
  const wire::End end = Serve(runtime, *events, trace, name, rank, interruption);
  if (tracing) events->Write(static_cast<ExitCode>(end.exit_code()), end.reason());
  runtime.Stop();
  if (tracing && !name.empty()) events->WriteTrace(trace, name);
  if (end.left()) LOG(INFO) << end.reason();
  if (end.exit_code() != 0) throw Error(static_cast<ExitCode>(end.exit_code()), end.reason());
  return ExitCode::kSuccess;
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  poseidon::RestartWithBetterBlasCore(argv);  // gradients are rebuilt from factors here
  poseidon::ReadOwnFlags(
      "A parameter server of a job: holds its share of the parameters, adds up gradients and "
      "applies the solver's update.\n\n  poseidon_server --config=job.prototxt [--rank=N]",
      __FILE__, &argc, &argv);
  return poseidon::RunProgram(poseidon::kProgram, argv[0], poseidon::Run);
}
