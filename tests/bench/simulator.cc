// How fast SimRuntime is and how much memory it takes.
//
//   bench_simulator [MAX_NODES]     (default 4096)
//
// Two patterns, from 16 nodes to MAX_NODES, one machine a node, phantom payloads:
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
// Every case is a process of its own, so that one's memory is not the other's.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>

#include "transport/sim_runtime.h"

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

int RunCases(int max_nodes) {
  std::printf("%-11s %6s %10s %10s %12s %10s %10s\n", "pattern", "nodes", "M events", "M events/s",
              "M envel./s", "setup KiB", "peak KiB");
  std::fflush(stdout);
  for (const Pattern& pattern : {Pattern{"all-to-all", true}, Pattern{"star", false}}) {
    for (int nodes = 16; nodes <= max_nodes; nodes *= 4) {
      const pid_t child = fork();
      if (child == 0) {
        RunCase(pattern, nodes);
        _exit(0);
      }
      int status = 0;
      if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        std::fprintf(stderr, "%s with %d nodes did not finish\n", pattern.name, nodes);
        return 1;
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  const int max_nodes = argc > 1 ? std::atoi(argv[1]) : 4096;
  return poseidon::RunCases(max_nodes);
}
