// poseidon_scheduler: the coordinator daemon. Gathers the nodes of a job, plans, watches, reports.
#include <gflags/gflags.h>
#include <glog/logging.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "cli/job_watch.h"
#include "core/atomic_file.h"
#include "core/end_deadline.h"
#include "core/error.h"
#include "core/files/directories.h"
#include "core/net/host_address.h"
#include "core/own_flags.h"
#include "core/process/bounded_output.h"
#include "core/process/build_identity.h"
#include "core/program.h"
#include "core/steady_now.h"
#include "launch/given_up.h"
#include "proto/job_config.h"
#include "scheduler/journal/journal.h"
#include "scheduler/journal/journal_writer.h"
#include "scheduler/monitor/job_monitor.h"
#include "scheduler/report/job_report.h"
#include "scheduler/scheduler_actor.h"
#include "simulation/plan_trial.h"
#include "transport/membership/event_writer.h"
#include "transport/membership/node_setup.h"
#include "transport/zmq/zmq_runtime.h"

DEFINE_string(config, "", "The job config (docs/configuration.md); the same for all nodes.");
DEFINE_bool(launched, false,
            "Standard input is this scheduler's launcher: each line is a wire::LostProcess in text "
            "format, and its end ends the job. For `poseidon run`.");
DEFINE_string(sigint_effect, "end",
              "What SIGINT does: \"stop\" ends training after an iteration, with the snapshot of "
              "its end; \"snapshot\" has one written and goes on; \"none\"; or \"end\", at once.");
DEFINE_string(sighup_effect, "end", "Likewise of SIGHUP.");
DEFINE_string(out, "",
              "Directory for summary.json, scheduler.events.json if the job ends badly or wants a "
              "trace, and, in a job with `recovery`, scheduler.journal, from "
              "which the scheduler goes on that is started after this one; made if it is not "
              "there. Empty: none.");

namespace poseidon {
namespace {

constexpr const char* kProgram = "poseidon_scheduler";

// What a machine that is there needs to confirm a message is a round trip; what it does not is sent
// again after a fifth of a second.
constexpr Duration kConfirmationTime = std::chrono::milliseconds(500);

// Between two tries to do what a full disk keeps from being done.
constexpr Duration kTryInterval = Seconds(1);
// How long the result of a training that has ended well waits for room; the nodes have ended, and
// hold their machines only where all wait for the scheduler.
constexpr Duration kSummaryPatience = Seconds(60);

// What there is to do about an error whose words end with the system's.
std::string AdviceFor(std::string_view error) {
  const bool is_full =
      error.ends_with(std::strerror(ENOSPC)) || error.ends_with(std::strerror(EDQUOT));
  return is_full ? ": make room" : "";
}

// Does what writes to a disk, and again while that fails, as it is full or its file server has
// gone, until `patience` has passed. Throws what was thrown last, and Interrupted().
void WritePatiently(Duration patience, Interruption& interruption,
                    const std::function<void()>& write) {
  const Time end = SteadyNow() + patience;
  for (bool told = false;; told = true) {
    try {
      return write();
    } catch (const Error& error) {
      if (error.exit_code() != ExitCode::kFailure || SteadyNow() >= end) throw;
      if (!told) {
        Show(std::string(error.what()) + "; this is tried again every second, for at most " +
             std::to_string(static_cast<int>(ToSeconds(patience))) + " s" +
             AdviceFor(error.what()));
      }
    }
    Pause(kTryInterval, interruption);
  }
}

// Another term of a job; or the first, of one that need not survive its scheduler.
void TellOfPast(const Journal& journal, const std::string& path) {
  const JobState& past = journal.state();
  if (journal.cut_bytes() > 0) {
    LOG(WARNING) << "cut " << journal.cut_bytes() << " bytes off the end of " << path
                 << ": the scheduler before was killed while it wrote them, and nobody has heard "
                    "of them";
  }
  if (past.end) {
    Show("the job \"" + past.name + "\" has ended already: " + past.end->reason() +
         "; to run it anew, remove " + path);
  } else if (past.stage != JobState::Stage::kGathering) {
    Show("goes on with the job \"" + past.name + "\" of the scheduler before, which was lost at " +
         (past.reached > past.declared.first_iteration()
              ? "iteration " + std::to_string(past.reached)
              : "its start"));
  }
}

// What the job's next scheduler is to know is written down where the job survives this one and
// there is a place for it. The job's nodes wait meanwhile as for a scheduler that is under way.
std::unique_ptr<Journal> OpenJournal(const JobConfig& config, Interruption& interruption) {
  if (config.job.recovery().mode() == Recovery::NONE) return nullptr;
  if (FLAGS_out.empty()) {
    LOG(WARNING) << "without --out there is no journal, and the job can't go on when this "
                    "scheduler is lost";
    return nullptr;
  }
  const std::string path = FLAGS_out + "/" + kJournalFile;
  std::unique_ptr<Journal> journal;
  WritePatiently(JournalPatience(config.job), interruption, [&] {
    MakeDirectories(FLAGS_out);
    journal = std::make_unique<Journal>(
        path, Journal::Owner{DrawRandom(), config.fingerprint, config.job.name(),
                             std::string(BuildIdentity())});
  });
  TellOfPast(*journal, path);
  return journal;
}

// Of a job without a past it answers at once, however long the scheduler's name takes to be found.
// Only the file that says where it is comes later (Announce), once the job's port is this
// scheduler's.
std::unique_ptr<JobMonitor> OpenMonitor(const Job& job, const Journal* journal) {
  if (!job.has_monitor()) return nullptr;
  auto monitor = std::make_unique<JobMonitor>(job, FLAGS_out);
  const bool begins = journal == nullptr || journal->state().stage == JobState::Stage::kGathering;
  if (begins) monitor->Publish(SteadyNow());
  Show("monitor: " + monitor->url());
  return monitor;
}

// If the job has ended badly, or wants a trace.
void WriteEvents(const Job& job, const wire::End& end, EventWriter& events) {
  const int code = end.job_exit_code() != 0 ? end.job_exit_code() : end.exit_code();
  if (code == 0 && !job.training().trace()) return;
  // Who is silent was told of the end, too: whether its machine has confirmed that is evidence.
  const bool lost = code == static_cast<int>(ExitCode::kPeerLost);
  if (lost) std::this_thread::sleep_for(kConfirmationTime);
  events.Write(static_cast<ExitCode>(code), end.reason());
}

// Where the nodes have ended well, the job may still have been stopped.
int CodeOf(const wire::End& end) {
  return end.exit_code() != 0 ? end.exit_code() : end.job_exit_code();
}

// The error with which this process ends if it hangs after this message; nullopt: it need not end.
std::optional<Error> EndIn(const Envelope& envelope) {
  wire::End end;
  if (envelope.kind != MessageKind::kEnd && envelope.kind != MessageKind::kFailed) return {};
  if (!end.ParseFromString(envelope.body.ToString())) return {};
  if (const int code = CodeOf(end); code != 0) {
    return Error(static_cast<ExitCode>(code), "the job has ended: " + end.reason());
  }
  const std::string result =
      FLAGS_out.empty() ? "its result is not shown: see whether the disk of standard output answers"
                        : "summary.json is not written: see whether the disk of --out answers";
  return Error(ExitCode::kFailure, "training has ended well, and " + result);
}

// It tells of another job's end to whoever asks for this one's.
void RemoveEarlierSummary() {
  std::error_code ignored;  // the next one replaces it, too
  if (!FLAGS_out.empty()) std::filesystem::remove(FLAGS_out + "/summary.json", ignored);
}

void WriteSummary(const std::string& summary, const wire::End& end, Interruption& interruption) {
  const bool ended_well = end.exit_code() == 0;
  try {
    WritePatiently(ended_well ? kSummaryPatience : Duration{}, interruption, [&] {
      MakeDirectories(FLAGS_out);  // somebody may have removed it
      WriteFileAtomically(FLAGS_out + "/summary.json", summary);
    });
  } catch (const Error& error) {
    if (ended_well) throw;
    // Perhaps the job has ended for the same cause; why it did says more.
    LOG(ERROR) << error.what();
  }
}

ExitCode Run() {
  const Time began = SteadyNow();
  const BoundedOutput output(std::cout, STDOUT_FILENO);
  const JobConfig config = ReadJobConfig(FLAGS_config);
  Interruption interruption({ParseSignalEffect("sigint_effect", FLAGS_sigint_effect),
                             ParseSignalEffect("sighup_effect", FLAGS_sighup_effect)});
  // Also of what closes the journal.
  EndDeadline end_deadline(kProgram, kSummaryPatience + EndDeadline::kPatience);
  const std::unique_ptr<Journal> journal = OpenJournal(config, interruption);
  if (!FLAGS_out.empty()) MakeDirectories(FLAGS_out);
  const std::unique_ptr<JobMonitor> monitor = OpenMonitor(config.job, journal.get());

  AwaitSchedulerName(config.job.cluster(), [&] {
    const auto request = interruption.TakeRequest();
    const bool stops = request && request->effect == SignalEffect::kStop;
    if (stops || interruption.Pending()) throw Interrupted();
  });
  ZmqOptions options = NodeZmqOptions(config.job, config.job.cluster().scheduler_host());
  options.data_lanes = 0;
  ClaimSchedulersFiles(config.job);
  options.control_port = config.job.cluster().scheduler_port();
  options.heartbeat_port = config.job.cluster().scheduler_port() + 1;
  ZmqRuntime runtime({Role::kScheduler, 0}, options);
  const Cluster& cluster = config.job.cluster();
  const bool host_is_own = IsOwnAddress(cluster.scheduler_host());
  SchedulerOptions scheduler;
  scheduler.job = WithoutKey(config.job);
  scheduler.job_fingerprint = config.fingerprint;
  scheduler.build = BuildIdentity();
  scheduler.planner = PlanByTrial;
  scheduler.epoch = journal ? journal->state().base : DrawRandom();
  scheduler.host_is_own = host_is_own;
  // A node on this machine is called by the address from which it speaks to the scheduler, if by
  // nothing else.
  if (host_is_own) {
    scheduler.own_hosts = {cluster.scheduler_host(), ResolveHost(cluster.scheduler_host()),
                           "localhost", "127.0.0.1", "::1"};
  }
  scheduler.launched = FLAGS_launched;
  if (journal) scheduler.journal = journal->state();
  runtime.Attach(kControlLane, MakeScheduler(std::move(scheduler)));
  EventWriter events(runtime, config.job.cluster().scheduler_host(), FLAGS_out);
  // This thread may hang with the disk of --out, to which it writes, and it looks for signals.
  runtime.Observe([&](const Envelope& envelope) {
    if (const std::optional<Error> end = EndIn(envelope)) end_deadline.Start(*end);
    if (interruption.Asked()) runtime.Post(InterruptedStop());
  });
  // Whoever has come so far has the port that the job's nodes ask: nobody else runs the job.
  RemoveEarlierSummary();
  if (monitor) monitor->Announce();
  // It reads again what a long job has written down, which the nodes are not to wait for once they
  // are heard.
  JobWatch watch(runtime, config.job, FLAGS_launched, journal.get(), monitor.get());
  runtime.Start();
  LOG(INFO) << "waiting for " << cluster.workers() << " worker(s) and " << cluster.servers()
            << " server(s) at "
            << (host_is_own ? runtime.endpoint(kControlLane)
                            : "port " + std::to_string(cluster.scheduler_port()));
  if (!host_is_own) {
    LOG(WARNING)
        << "cluster.scheduler_host, \"" << cluster.scheduler_host()
        << "\", is no address of this machine; unless the network translates it to one, no "
           "node finds this scheduler: name this machine in the config, or start the "
           "scheduler there";
  }

  const wire::End end = watch.Run(interruption);
  const JobReport& report = watch.report();
  WriteEvents(config.job, end, events);
  runtime.Stop();
  const int code = CodeOf(end);
  if (code == 0) Show(report.Closing());
  if (!FLAGS_out.empty()) {
    WriteSummary(report.Json(config.job.name(), end, SteadyNow() - began), end, interruption);
  }
  if (code != 0 && end.exit_code() == 0) Show("training has ended early: " + end.reason());
  if (code != 0) throw Error(static_cast<ExitCode>(code), "the job has ended: " + end.reason());
  return ExitCode::kSuccess;
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  poseidon::ReadOwnFlags(
      "The scheduler of a job: gathers its nodes, plans how each layer is synchronized, watches "
      "that all live, and reports.\n\n  poseidon_scheduler --config=job.prototxt [--out=DIR]",
      __FILE__, &argc, &argv);
  return poseidon::RunProgram(poseidon::kProgram, argv[0], poseidon::Run);
}
