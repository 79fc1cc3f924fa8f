#include "tests/simulation/socket_training.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/random.h"
#include "proto/job_config.h"
#include "scheduler/scheduler_actor.h"
#include "server/server_control.h"
#include "transport/membership/node_setup.h"
#include "transport/zmq/zmq_runtime.h"

namespace poseidon {
namespace {

constexpr uint64_t kFingerprint = 1;
constexpr const char* kHost = "127.0.0.1";

// Ports that are neighbors and free. Drawn at random, as tests of other programs look for some at
// the same time, below those that the kernel hands out by itself.
int FindPorts() {
  Random random(std::chrono::steady_clock::now().time_since_epoch().count() ^ getpid());
  for (int attempt = 0;; ++attempt) {
    const int port = 10000 + 2 * static_cast<int>(random.Below(10000));
    try {
      ZmqOptions options;
      options.control_port = port;
      options.heartbeat_port = port + 1;
      const ZmqRuntime probe({Role::kScheduler, 0}, options);
      return port;
    } catch (const ConfigError&) {
      if (attempt > 100) throw;
    }
  }
}

// The job with a scheduler on this machine.
Job ScheduledHere(Job job) {
  job.mutable_cluster()->set_scheduler_host(kHost);
  job.mutable_cluster()->set_scheduler_port(FindPorts());
  return job;
}

Parameters RunWorker(WorkerSessionOptions options, const TrainingWork& work, const WorkerLoop& loop,
                     const DeviceMaker& make_device) {
  const std::unique_ptr<Device> device = make_device ? make_device() : nullptr;
  if (device != nullptr) options.allocate = PinnedFor(*device);
  WorkerSession session(options);
  session.Declare(work.model);
  const int layers = work.model.layers_size();
  for (int layer = 0; session.rank() == 0 && layer < layers; ++layer) {
    work.arithmetic.initialize(layer, session.values(layer));
  }
  session.Begin();
  Parameters parameters = loop(session, work);
  session.Finish({});
  return parameters;
}

// Asks for another plan during training and waits until it is there.
void SwitchPlan(ZmqRuntime& scheduler, const wire::PlanAndModel& next) {
  bool asked = false;
  while (const std::optional<Envelope> envelope = scheduler.mailbox().Take(Seconds(60))) {
    wire::PlanAndModel plan;
    if (envelope->kind == MessageKind::kProgress && !asked) {
      scheduler.Post(MakeEnvelope(MessageKind::kSwitchPlan, Here(kControlLane), next));
      asked = true;
    } else if (envelope->kind == MessageKind::kPlan) {
      ASSERT_TRUE(plan.ParseFromString(envelope->body.ToString()));
      if (plan.plan().number() == 1) return;
    } else if (envelope->kind == MessageKind::kEnd) {
      FAIL() << "the job ended under its first plan";
    }
  }
  FAIL() << "no other plan";
}

// By rank, when all workers have finished.
std::vector<wire::WorkerReport> TakeReports(ZmqRuntime& scheduler, size_t workers) {
  std::vector<wire::WorkerReport> reports(workers);
  while (const std::optional<Envelope> envelope = scheduler.mailbox().Take({})) {
    wire::WorkerReport report;
    if (envelope->kind != MessageKind::kFinished) continue;
    EXPECT_TRUE(report.ParseFromString(envelope->body.ToString()));
    reports.at(report.rank()) = report;
  }
  return reports;
}

wire::End TakeEnd(ZmqRuntime& scheduler) {
  wire::End end;
  while (const std::optional<Envelope> envelope = scheduler.mailbox().Take(Seconds(60))) {
    if (envelope->kind != MessageKind::kEnd) continue;
    EXPECT_TRUE(end.ParseFromString(envelope->body.ToString()));
    return end;
  }
  ADD_FAILURE() << "the job has not ended";
  return end;
}

// Of a job that is scheduled here. `take`: asks the scheduler when the workers have ended.
Parameters RunNodes(const Job& job, uint64_t fingerprint, const wire::PlanAndModel* next,
                    const WorkerProcess& worker, const std::function<void(ZmqRuntime&)>& take) {
  const int port = job.cluster().scheduler_port();
  ZmqOptions scheduler_options;
  scheduler_options.public_host = kHost;
  scheduler_options.control_port = port;
  scheduler_options.heartbeat_port = port + 1;
  ZmqRuntime scheduler({Role::kScheduler, 0}, scheduler_options);
  SchedulerOptions actor;
  actor.job = job;
  actor.job_fingerprint = fingerprint;
  actor.epoch = DrawRandom();
  scheduler.Attach(kControlLane, MakeScheduler(std::move(actor)));
  scheduler.Start();
  std::vector<std::unique_ptr<ZmqRuntime>> servers;
  for (int rank = 0; rank < job.cluster().servers(); ++rank) {
    servers.push_back(
        std::make_unique<ZmqRuntime>(NodeId{Role::kServer, -1}, NodeZmqOptions(job, kHost)));
    ServerOptions server;
    server.member =
        NodeMemberOptions(job, fingerprint, Role::kServer, rank, kHost, *servers.back());
    servers.back()->Attach(kControlLane, std::make_unique<ServerControl>(std::move(server)));
    servers.back()->Start();
  }
  std::vector<Parameters> results(job.cluster().workers());
  std::vector<std::thread> workers;
  for (int rank = 0; rank < job.cluster().workers(); ++rank) {
    WorkerSessionOptions options;
    options.job = job;
    options.job_fingerprint = fingerprint;
    options.wanted_rank = rank;
    options.host = kHost;
    workers.emplace_back([&, rank, options] { results[rank] = worker(options); });
  }
  if (next != nullptr) SwitchPlan(scheduler, *next);
  for (std::thread& thread : workers) thread.join();
  for (const Parameters& result : results) EXPECT_EQ(result, results[0]);
  take(scheduler);
  return results[0];
}

}  // namespace

Parameters RunOverSockets(Job job, const wire::PlanAndModel* next, const WorkerProcess& worker,
                          std::vector<wire::WorkerReport>* reports) {
  const auto take = [&, workers = job.cluster().workers()](ZmqRuntime& scheduler) {
    if (reports != nullptr) *reports = TakeReports(scheduler, static_cast<size_t>(workers));
  };
  return RunNodes(ScheduledHere(std::move(job)), kFingerprint, next, worker, take);
}

wire::End RunProgramsOverSockets(const Job& job, const WorkerProgram& program) {
  const std::string text = ScheduledHere(job).ShortDebugString();
  const JobConfig config = ParseJobConfig(text, "the test's job");
  const auto worker = [&](const WorkerSessionOptions& options) {
    program({.job_text = text, .rank = options.wanted_rank, .host = options.host});
    return Parameters();
  };
  wire::End end;
  RunNodes(config.job, config.fingerprint, nullptr, worker,
           [&](ZmqRuntime& scheduler) { end = TakeEnd(scheduler); });
  return end;
}

Parameters TrainOverSockets(const SimulatedClusterOptions& options, const wire::PlanAndModel* next,
                            const WorkerLoop& loop, const DeviceMaker& make_device) {
  return RunOverSockets(options.job, next, [&](const WorkerSessionOptions& session) {
    return RunWorker(session, options.work, loop, make_device);
  });
}

Parameters TrainOnHosts(WorkerSession& session, const TrainingWork& work) {
  const int layers = work.model.layers_size();
  while (session.iteration() < work.iterations) {
    for (int layer = 0; layer < layers; ++layer) session.WaitFresh(layer);
    for (int layer = layers - 1; layer >= 0; --layer) {
      work.arithmetic.gradient(session.rank(), session.iteration(), layer, session.values(layer),
                               session.gradient(layer));
      session.GradientReady(layer);
    }
    if (session.EndIteration({})) session.ChangePlan();
  }
  Parameters parameters;
  for (int layer = 0; layer < layers; ++layer) {
    session.WaitFresh(layer);
    const std::span<float> values = session.values(layer);
    parameters.emplace_back(values.begin(), values.end());
  }
  return parameters;
}

}  // namespace poseidon
