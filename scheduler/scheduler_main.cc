// poseidon_scheduler: the coordinator daemon. Gathers the nodes of a job, plans, watches, reports.
#include <gflags/gflags.h>
#include <glog/logging.h>

#include <filesystem>
#include <iostream>

#include "core/atomic_file.h"
#include "core/error.h"
#include "core/program.h"
#include "core/steady_now.h"
#include "planner/replan.h"
#include "proto/job_config.h"
#include "scheduler/job_report.h"
#include "scheduler/scheduler_actor.h"
#include "transport/membership/node_setup.h"
#include "transport/zmq/zmq_runtime.h"

DEFINE_string(config, "", "The job config (docs/configuration.md); the same for all nodes.");
DEFINE_string(out, "", "Directory for summary.json; made if it is not there. Empty: none.");

namespace poseidon {
namespace {

// How often the loop looks for a signal.
constexpr Duration kTick = std::chrono::milliseconds(100);

void Show(const std::string& text) { std::cout << text << std::endl; }

// Goes over to another plan if the measured times make one much better.
void MakeUseOf(const wire::LayerTimes& times, const Job& job, const wire::PlanAndModel& plan,
               JobReport& report, ZmqRuntime& runtime) {
  // Two runs must not differ in what was measured.
  if (job.communication().deterministic()) return;
  Job known = job;
  *known.mutable_cluster()->mutable_network() = plan.network();
  const Replanned replanned = Replan(known, plan, times);
  Show(replanned.why);
  report.OnRecalibration(replanned.current);
  if (!replanned.plan) return;
  runtime.Post(MakeEnvelope(MessageKind::kSwitchPlan, Here(kControlLane), *replanned.plan));
}

// Shows what the job reports until it ends; returns why it did.
wire::End Watch(ZmqRuntime& runtime, const Job& job, JobReport& report,
                Interruption& interruption) {
  wire::PlanAndModel plan;
  while (true) {
    if (interruption.Pending()) {
      runtime.Post(MakeEnvelope(
          MessageKind::kStop, Here(kControlLane),
          MakeEnd(ExitCode::kInterrupted, "the scheduler was interrupted by a signal")));
    }
    const std::optional<Envelope> envelope = runtime.mailbox().Take(kTick);
    if (!envelope) continue;
    const std::string body = envelope->body.ToString();
    if (envelope->kind == MessageKind::kJoined) {
      wire::View view;
      view.ParseFromString(body);
      Show("all " + std::to_string(view.nodes_size()) + " nodes have joined");
    } else if (envelope->kind == MessageKind::kPlan) {
      plan.ParseFromString(body);
      report.OnPlan(plan);
      if (plan.plan().number() > 0) {
        Show("another plan from iteration " + std::to_string(plan.plan().start_iteration()) +
             " on");
      }
      Show(report.PlanTable());
    } else if (envelope->kind == MessageKind::kLayerTimes) {
      wire::LayerTimes times;
      if (times.ParseFromString(body)) MakeUseOf(times, job, plan, report, runtime);
    } else if (envelope->kind == MessageKind::kProgress) {
      wire::Progress progress;
      if (!progress.ParseFromString(body)) continue;
      const Time now = SteadyNow();
      if (const auto line = report.OnProgress(progress, now)) Show(*line);
    } else if (envelope->kind == MessageKind::kFinished) {
      wire::WorkerReport worker;
      if (worker.ParseFromString(body)) report.OnFinished(worker);
    } else if (envelope->kind == MessageKind::kEnd || envelope->kind == MessageKind::kFailed) {
      wire::End end;
      end.ParseFromString(body);
      return end;
    }
  }
}

ExitCode Run() {
  const JobConfig config = ReadJobConfig(FLAGS_config);
  if (!FLAGS_out.empty()) std::filesystem::create_directories(FLAGS_out);
  Interruption interruption;

  ZmqOptions options = NodeZmqOptions(config.job, config.job.cluster().scheduler_host());
  options.data_lanes = 0;
  options.control_port = config.job.cluster().scheduler_port();
  options.heartbeat_port = config.job.cluster().scheduler_port() + 1;
  ZmqRuntime runtime({Role::kScheduler, 0}, options);
  runtime.Attach(kControlLane, std::make_unique<SchedulerActor>(
                                   SchedulerOptions{config.job, config.fingerprint, DrawRandom()}));
  runtime.Start();
  LOG(INFO) << "waiting for " << config.job.cluster().workers() << " worker(s) and "
            << config.job.cluster().servers() << " server(s) at " << runtime.endpoint(kControlLane);

  JobReport report(config.job.cluster().workers());
  const wire::End end = Watch(runtime, config.job, report, interruption);
  runtime.Stop();
  if (!FLAGS_out.empty()) {
    WriteFileAtomically(FLAGS_out + "/summary.json", report.Json(config.job.name(), end));
  }
  if (end.exit_code() != 0) {
    throw Error(static_cast<ExitCode>(end.exit_code()), "the job has ended: " + end.reason());
  }
  Show(report.Closing());
  return ExitCode::kSuccess;
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  gflags::SetUsageMessage(
      "The scheduler of a job: gathers its nodes, plans how each layer is synchronised, watches "
      "that all live, and reports.\n\n  poseidon_scheduler --config=job.prototxt [--out=DIR]");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return poseidon::RunProgram("poseidon_scheduler", argv[0], poseidon::Run);
}
