// How fast SimRuntime is and how much memory it takes.
//
//   bench_simulator [MAX_NODES]     (default 4096)
//
// First the runtime alone. Two patterns, from 16 nodes to MAX_NODES, one machine a node, phantom
// payloads:
//
//   all-to-all  every node sends an envelope to each of the others, and again when it has heard
//   from
//               all of them (sufficient-factor broadcast; all of a round is in the queues at once)
//   star        all nodes send to node 0, which answers them all when it has heard from all (one
//               parameter server)
//
// A case runs rounds until there were about three million events, at least one round. Columns:
//
//   events/s      of the event loop, per second of CPU
//   envelopes/s   delivered, per second of CPU; an envelope costs two or three events
//   setup KiB     memory a node with its actor and its routes to the others
//   peak KiB      memory a node at the fullest moment, with what is queued
//
// Then trainings, with all real actors, from 16 workers to MAX_NODES, each with a server beside it:
// sixteen layers of 1 MiB under PS, and, merged to one bucket, around a ring and along a square
// torus. They join and get a plan; measured are the three million events or more of training after
// that. Columns:
//
//   setup s       CPU seconds until training starts
//   events/s, messages/s    of training, per second of CPU
//   KiB a worker  of memory, with its server, at the fullest moment
//   ns a message  of training
//
// and, for both of the latter, how many times as much it is as with a quarter of the workers: 1.0
// is what does not grow.
//
// Every case is a process of its own, so that one's memory is not the other's.
#include <glog/logging.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>
#include <optional>

#include "simulation/simulated_cluster.h"
#include "tests/bench/usage.h"
#include "transport/sim/sim_runtime.h"

namespace poseidon {
namespace {

constexpr int kLane = kFirstDataLane;
constexpr int64_t kEventsPerCase = 3000000;
constexpr size_t kChunkBytes = 2 << 20;

Envelope Chunk(int to, int64_t round) {
  Envelope envelope;
  envelope.kind = MessageKind::kGradient;
  envelope.to = {{Role::kWorker, to}, kLane};
  envelope.iteration = round;
  envelope.priority = 0;
  envelope.body = Payload::Phantom(kChunkBytes);
  return envelope;
}

// Sends to a range of nodes, waits until it has heard from as many, and so on.
class Peer : public Actor {
 public:
  Peer(int self, int first, int last, bool speaks_first)
      : self_(self), first_(first), last_(last), speaks_first_(speaks_first) {
    for (int to = first_; to <= last_; ++to) peers_ += to != self_;
  }

  void OnStart(Outbox& outbox) override {
    if (speaks_first_) SendRound(outbox);
  }

  void OnMessage(const Envelope&, Outbox& outbox) override {
    if (++heard_ % peers_ == 0) SendRound(outbox);
  }

 private:
  // Starts behind itself, so that not all nodes send to node 0 first.
  void SendRound(Outbox& outbox) {
    const int count = last_ - first_ + 1;
    for (int i = 1; i <= count; ++i) {
      const int to = first_ + (self_ - first_ + i) % count;
      if (to != self_) outbox.Send(Chunk(to, round_));
    }
    ++round_;
  }

  int self_, first_, last_;
  bool speaks_first_;
  int64_t peers_ = 0;
  int64_t heard_ = 0;
  int64_t round_ = 0;
};

struct Pattern {
  const char* name;
  // Nodes that a node sends to: all, or only node 0 (which sends to all others).
  bool all_to_all;
};

double ResidentKib() {
  long pages = 0;
  std::ifstream("/proc/self/statm").ignore(64, ' ') >> pages;
  return static_cast<double>(pages) * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1024;
}

double PeakKib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss);
}

// Whether it came to its end.
template <typename Function>
bool InProcessOfItsOwn(const Function& function) {
  const pid_t child = fork();
  if (child == 0) {
    function();
    _exit(0);
  }
  int status = 0;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

// That a process shares with those that it forks; never given back.
template <typename Value>
Value* SharedMemory() {
  void* const memory =
      mmap(nullptr, sizeof(Value), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED) << "no memory";
  return new (memory) Value;
}

void BuildCluster(const Pattern& pattern, int nodes, SimRuntime* runtime) {
  for (int node = 0; node < nodes; ++node) {
    runtime->AddNode({Role::kWorker, node}, runtime->AddMachine({}));
  }
  for (int node = 0; node < nodes; ++node) {
    const bool to_all = pattern.all_to_all || node == 0;
    const int first = pattern.all_to_all ? 0 : (to_all ? 1 : 0);
    const int last = to_all ? nodes - 1 : 0;
    for (int to = first; to <= last; ++to) {
      runtime->SetRoute(node, {{Role::kWorker, to}, kLane}, runtime->endpoint(to, kLane));
    }
    const bool speaks_first = pattern.all_to_all || node != 0;
    runtime->Attach(node, kLane, std::make_unique<Peer>(node, first, last, speaks_first));
  }
}

void RunCase(const Pattern& pattern, int nodes) {
  const double before = ResidentKib();
  SimRuntime runtime{SimOptions{}};
  BuildCluster(pattern, nodes, &runtime);
  const double setup = ResidentKib() - before;

  // Runs step by step of virtual time: a round takes at least this long on one NIC.
  const Duration round = Seconds((nodes - 1) * static_cast<double>(kChunkBytes) / 5e9);
  const std::clock_t start = std::clock();
  while (runtime.statistics().events < kEventsPerCase) runtime.Run(runtime.now() + round);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;

  const SimStatistics& statistics = runtime.statistics();
  std::printf("%-11s %6d %10.2f %10.2f %12.2f %10.1f %10.1f\n", pattern.name, nodes,
              static_cast<double>(statistics.events) / 1e6,
              static_cast<double>(statistics.events) / seconds / 1e6,
              static_cast<double>(statistics.envelopes) / seconds / 1e6, setup / nodes,
              (PeakKib() - before) / nodes);
  std::fflush(stdout);
}

int RunPatterns(int max_nodes) {
  std::printf("%-11s %6s %10s %10s %12s %10s %10s\n", "pattern", "nodes", "M events", "M events/s",
              "M envel./s", "setup KiB", "peak KiB");
  std::fflush(stdout);
  for (const Pattern& pattern : {Pattern{"all-to-all", true}, Pattern{"star", false}}) {
    for (int nodes = 16; nodes <= max_nodes; nodes *= 4) {
      if (!InProcessOfItsOwn([&] { RunCase(pattern, nodes); })) {
        std::fprintf(stderr, "%s with %d nodes did not finish\n", pattern.name, nodes);
        return 1;
      }
    }
  }
  return 0;
}

struct Training {
  const char* name;
  Communication::Policy policy;
};

constexpr int kLayers = 16;
constexpr int64_t kLayerFloats = 1 << 18;

ModelSpec SixteenLayers() {
  ModelSpec model;
  model.set_batch(32);
  for (int l = 0; l < kLayers; ++l) {
    LayerSpec& layer = *model.add_layers();
    layer.set_name("layer" + std::to_string(l));
    layer.add_blobs()->add_shape(kLayerFloats);
  }
  model.mutable_update_rule()->set_type("SGD");
  model.mutable_update_rule()->set_lr_policy("fixed");
  model.mutable_update_rule()->set_base_lr(0.1F);
  return model;
}

SimulatedClusterOptions OptionsFor(const Training& training, int workers) {
  SimulatedClusterOptions options;
  Job& job = options.job;
  job.mutable_cluster()->set_workers(workers);
  job.mutable_cluster()->set_servers(workers);
  job.mutable_cluster()->mutable_network()->set_bandwidth("10Gbps");
  Communication& communication = *job.mutable_communication();
  communication.set_policy(training.policy);
  communication.set_lanes(1);
  communication.set_heartbeat_interval_seconds(1e5);  // no heartbeats, and nobody dies
  communication.set_heartbeat_deadline_seconds(1e6);
  communication.set_stall_deadline_seconds(1e6);
  if (training.policy != Communication::ALL_PS) {
    communication.set_bucket_bytes(kLayers * kLayerFloats * sizeof(float));
    communication.set_kv_pair_bytes(kLayers * kLayerFloats * sizeof(float));
  }
  options.work.model = SixteenLayers();
  options.work.iterations = 1 << 20;  // more than are waited for
  constexpr Duration kLayerTime = std::chrono::microseconds(100);
  for (int l = 0; l < kLayers; ++l) {
    options.work.timeline.steps.push_back({l, kLayerTime, 2 * kLayerTime});
  }
  NicSpec nic;
  nic.goodput_bytes_per_second = 1.25e9;
  options.layout = ColocatedLayout(job, nic);
  return options;
}

// What a case gives to the next one with four times the workers.
struct Cost {
  double nanoseconds = 0;  // a message
  double kib = 0;          // a worker
};

Cost RunTraining(const Training& training, int workers, const std::optional<Cost>& before) {
  const double memory_before = ResidentKib();
  const std::clock_t start = std::clock();
  SimulatedCluster cluster(OptionsFor(training, workers));
  // Steps of virtual time in which little happens, so that little more is done than has to be.
  constexpr Duration kStep = std::chrono::microseconds(100);
  const auto step = [&] { cluster.Run(cluster.runtime().now() + kStep); };
  while (cluster.trainer(workers - 1).iterations.empty()) step();
  const SimStatistics at_start = cluster.runtime().statistics();
  const std::clock_t training_start = std::clock();
  const SimStatistics& now = cluster.runtime().statistics();
  while (now.events < at_start.events + kEventsPerCase) step();
  const double seconds = static_cast<double>(std::clock() - training_start) / CLOCKS_PER_SEC;
  const auto messages = static_cast<double>(now.envelopes - at_start.envelopes);
  const Cost cost = {1e9 * seconds / messages, (PeakKib() - memory_before) / workers};
  std::printf("%-8s %7d %9.2f %10.2f %12.2f %12.1f %12.0f", training.name, workers,
              static_cast<double>(training_start - start) / CLOCKS_PER_SEC,
              static_cast<double>(now.events - at_start.events) / seconds / 1e6,
              messages / seconds / 1e6, cost.kib, cost.nanoseconds);
  if (before)
    std::printf(" %8.2f %8.2f", cost.kib / before->kib, cost.nanoseconds / before->nanoseconds);
  std::printf("\n");
  std::fflush(stdout);
  return cost;
}

int RunTrainings(int max_workers) {
  std::printf("\n%-8s %7s %9s %10s %12s %12s %12s %8s %8s\n", "training", "workers", "setup s",
              "M events/s", "M messages/s", "KiB a worker", "ns a message", "x KiB", "x ns");
  std::fflush(stdout);
  for (const Training& training :
       {Training{"PS", Communication::ALL_PS}, Training{"ring", Communication::ALL_RING},
        Training{"torus", Communication::ALL_TORUS}}) {
    std::optional<Cost> before;
    for (int workers = 16; workers <= max_workers; workers *= 4) {
      Cost* const cost = SharedMemory<Cost>();
      if (!InProcessOfItsOwn([&] { *cost = RunTraining(training, workers, before); })) {
        std::fprintf(stderr, "%s with %d workers did not finish\n", training.name, workers);
        return 1;
      }
      before = *cost;
    }
  }
  return 0;
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  poseidon::bench::ShowHelp(argc, argv,
                            "bench_simulator [MAX_NODES]\n\nSpeed and memory of the simulator, "
                            "from 16 to MAX_NODES (4096) nodes.");
  FLAGS_minloglevel = google::GLOG_WARNING;  // that simulated nodes join is no news
  const int max_nodes = argc > 1 ? std::atoi(argv[1]) : 4096;
  const int failed = poseidon::RunPatterns(max_nodes);
  return failed != 0 ? failed : poseidon::RunTrainings(max_nodes);
}
