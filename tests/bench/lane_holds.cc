// How long a data lane does not look at its messages, for VGG19 and AlexNet under each scheme: an
// urgent message waits as long behind sums, updates, layers that are rebuilt from factors, and what
// a lane sends.
//
//   bench_lane_holds [--nets=VGG19,AlexNet] [--policies=ALL_PS,ALL_SFB] [--workers=2]
//   [--iterations=5]
//
// Workers and as many servers, each a process of its own on loopback with one lane, exchange
// gradients of the net's sizes; nothing is computed. Printed, for the lanes of all workers and of
// all servers: how many holds there were an iteration and node, and the median, the 99th percentile
// and the longest in milliseconds, by the clock and by the processor time of the lane's thread. The
// latter is without what the kernel gave to others, of whom there are many here. The first
// iteration, in which memory is touched for the first time, does not count.
#include <gflags/gflags.h>
#include <glog/logging.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "client/worker_session.h"
#include "core/error.h"
#include "server/server_control.h"
#include "tests/bench/local_job.h"
#include "tests/bench/usage.h"
#include "tests/unit/planner/reference_models.h"
#include "transport/membership/node_setup.h"

DEFINE_string(nets, "VGG19,AlexNet", "Which of them.");
DEFINE_string(policies, "ALL_PS,ALL_SFB,ALL_ADAM,ALL_RING,ALL_HALVING_DOUBLING,ALL_TORUS",
              "One scheme for all layers that can use it.");
DEFINE_int32(workers, 2, "Each with a server.");
DEFINE_int32(iterations, 5, "That count.");

namespace poseidon {
namespace {

constexpr int kPort = 19730;
constexpr int kBatch = 32;

// What the lanes of one node did in the iterations that count.
struct Counts {
  LaneHolds::Counts held{};
  LaneHolds::Counts worked{};
};

Counts CountsOf(const TransportCounters& counters) {
  return {counters.lane_holds.counts(), counters.lane_work.counts()};
}

Counts operator+(const Counts& a, const Counts& b) {
  return {poseidon::operator+(a.held, b.held), poseidon::operator+(a.worked, b.worked)};
}

Counts operator-(const Counts& a, const Counts& b) {
  return {poseidon::operator-(a.held, b.held), poseidon::operator-(a.worked, b.worked)};
}

std::vector<std::string> Split(const std::string& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');) parts.push_back(part);
  return parts;
}

ModelSpec NetNamed(const std::string& name) {
  if (name != "VGG19" && name != "AlexNet") throw ConfigError("there is no net " + name);
  ModelSpec model = name == "VGG19" ? Vgg19(kBatch) : AlexNet(kBatch);
  for (LayerSpec& layer : *model.mutable_layers()) {
    for (BlobSpec& blob : *layer.mutable_blobs()) {
      blob.set_lr_mult(1);
      blob.set_decay_mult(1);
    }
  }
  UpdateRuleSpec& rule = *model.mutable_update_rule();
  rule.set_type("SGD");
  rule.set_lr_policy("fixed");
  rule.set_base_lr(0.01F);
  rule.set_momentum(0.9F);
  return model;
}

Job JobOf(const std::string& policy) {
  Communication::Policy value{};
  if (!Communication::Policy_Parse(policy, &value)) {
    throw ConfigError("there is no policy " + policy);
  }
  Job job;
  job.mutable_cluster()->set_workers(FLAGS_workers);
  job.mutable_cluster()->set_servers(FLAGS_workers);
  job.mutable_cluster()->set_scheduler_port(kPort);
  job.mutable_communication()->set_policy(value);
  job.mutable_monitor()->set_node_port(0);  // has lanes' times counted
  return job;
}

Counts Scheduler(const Job& job) {
  RunScheduler(job);
  return {};
}

Counts Server(const Job& job, int rank, const Signal& warm) {
  ZmqRuntime runtime({Role::kServer, -1}, NodeZmqOptions(job, "127.0.0.1"));
  ServerOptions options;
  options.member = NodeMemberOptions(job, 0, Role::kServer, rank, "127.0.0.1", runtime);
  runtime.Attach(kControlLane, std::make_unique<ServerControl>(std::move(options)));
  runtime.Start();
  warm.Await();
  const Counts before = CountsOf(runtime.counters());
  AwaitEnvelope(runtime, MessageKind::kEnd);
  const Counts counts = CountsOf(runtime.counters()) - before;
  runtime.Stop();
  return counts;
}

// `warm`: of the servers, to whom one worker says it.
Counts Worker(const Job& job, const ModelSpec& model, const std::vector<Signal>& warm) {
  WorkerSessionOptions options;
  options.job = job;
  options.host = "127.0.0.1";
  WorkerSession session(options);
  session.Declare(model);
  session.Begin();
  const int layers = model.layers_size();
  Counts before{};
  for (int iteration = 0; iteration <= FLAGS_iterations; ++iteration) {
    for (int layer = 0; layer < layers; ++layer) session.WaitFresh(layer);
    if (iteration == 1) {
      before = CountsOf(session.counters());
      for (const Signal& server : warm) server.Send();
    }
    for (int layer = layers; layer-- > 0;) session.GradientReady(layer);
    if (session.EndIteration({})) session.ChangePlan();
  }
  for (int layer = 0; layer < layers; ++layer) session.WaitFresh(layer);
  const Counts counts = CountsOf(session.counters()) - before;
  session.Finish({});
  return counts;
}

// Each in a process of its own; what they counted.
std::vector<Counts> RunProcesses(const std::vector<std::function<Counts()>>& bodies) {
  std::vector<std::pair<pid_t, int>> children;
  for (const auto& body : bodies) {
    int ends[2];
    PCHECK(pipe(ends) == 0);
    const pid_t pid = fork();
    if (pid == 0) {
      const Counts counts = body();
      _exit(write(ends[1], &counts, sizeof counts) == sizeof counts ? 0 : 1);
    }
    close(ends[1]);
    children.emplace_back(pid, ends[0]);
  }
  std::vector<Counts> all;
  for (const auto& [pid, pipe] : children) {
    Counts counts;
    CHECK_EQ(read(pipe, &counts, sizeof counts), static_cast<ssize_t>(sizeof counts))
        << "a process of the benchmark failed";
    all.push_back(counts);
    close(pipe);
    waitpid(pid, nullptr, 0);
  }
  return all;
}

void PrintRow(const std::string& place, const char* of, const Counts& counts) {
  int64_t holds = 0;
  for (const int64_t count : counts.held) holds += count;
  if (holds == 0) return;
  constexpr double kMilliseconds = 1e3;
  std::printf("%-30s %-8s %6.0f", place.c_str(), of,
              static_cast<double>(holds) / (FLAGS_workers * FLAGS_iterations));
  for (const double share : {0.5, 0.99, 1.0}) {
    std::printf(" %9.3f", kMilliseconds * LaneHolds::Percentile(counts.held, share));
  }
  for (const double share : {0.5, 0.99, 1.0}) {
    std::printf(" %9.3f", kMilliseconds * LaneHolds::Percentile(counts.worked, share));
  }
  std::printf("\n");
  std::fflush(stdout);
}

void Measure(const std::string& net, const std::string& policy) {
  const Job job = JobOf(policy);
  const ModelSpec model = NetNamed(net);
  const std::vector<Signal> warm(FLAGS_workers);
  const std::vector<Signal> none;
  std::vector<std::function<Counts()>> bodies;
  for (int rank = 0; rank < FLAGS_workers; ++rank) {
    const bool says = rank == 0;
    bodies.emplace_back([&, says] { return Worker(job, model, says ? warm : none); });
  }
  for (int rank = 0; rank < FLAGS_workers; ++rank) {
    bodies.emplace_back([&, rank] { return Server(job, rank, warm[rank]); });
  }
  bodies.emplace_back([&] { return Scheduler(job); });
  const std::vector<Counts> counts = RunProcesses(bodies);
  Counts workers{};
  Counts servers{};
  for (int rank = 0; rank < FLAGS_workers; ++rank) {
    workers = workers + counts[rank];
    servers = servers + counts[FLAGS_workers + rank];
  }
  PrintRow(net + " " + policy, "workers", workers);
  const bool uses_servers = policy == "ALL_PS" || policy == "ALL_ADAM" || policy == "ALL_SFB";
  if (uses_servers) PrintRow(net + " " + policy, "servers", servers);
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  google::InitGoogleLogging(argv[0]);
  FLAGS_minloglevel = google::GLOG_WARNING;
  FLAGS_logtostderr = true;
  poseidon::bench::ParseFlags(&argc, &argv,
                              "How long a data lane does not look at its messages, for VGG19 and "
                              "AlexNet under each scheme.");
  std::printf("%-30s %-8s %6s %9s %9s %9s %9s %9s %9s\n", "", "lanes of", "holds", "p50 ms", "p99",
              "longest", "work: p50", "p99", "longest");
  for (const std::string& net : poseidon::Split(FLAGS_nets)) {
    for (const std::string& policy : poseidon::Split(FLAGS_policies)) {
      poseidon::Measure(net, policy);
    }
  }
}
