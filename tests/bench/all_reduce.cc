// How long an all-reduce among processes takes, and how much processor time.
//
//   bench_all_reduce [--ranks=4] [--schemes=ring,halving-doubling] [--sizes=64KiB,1MiB,64MiB] ...
//     forks so many ranks on this machine, over loopback
//   bench_all_reduce --rank=0 --endpoints=10.0.0.1:5000,10.0.0.2:5000 ...
//     is one rank; start the others in other network namespaces or on other machines
//
// Rank 0 prints, for each size and scheme, the fastest call, the median and the 99th percentile in
// milliseconds, and the processor time of all ranks, kernel included, in seconds per GB (10^9) of
// floats that leave a rank, 2 (P - 1) times the size over all ranks. Calls follow each other
// without a barrier, as the steps of a training do, after as many untimed ones as fit into a fifth
// of
// --seconds. Each scheme and size is measured in --repeats turns, which take turns with the others.
#include <gflags/gflags.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/units.h"
#include "poseidon/communicator.h"
#include "tests/bench/usage.h"
#include "tests/free_endpoints.h"

DEFINE_int32(ranks, 4, "ranks to fork on this machine");
DEFINE_int32(rank, -1, "be this rank of --endpoints instead of forking");
DEFINE_string(endpoints, "", "host:port of every rank, with commas");
DEFINE_string(schemes, "auto,ring,halving-doubling", "of auto, ring, halving-doubling, torus");
DEFINE_string(grid, "", "the torus's sizes, as 2x2");
DEFINE_string(sizes, "64KiB,256KiB,1MiB,4MiB,16MiB,64MiB", "bytes of floats");
DEFINE_string(chunk, "0B", "bytes of a chunk; 0B: by itself");
DEFINE_int32(lanes, 1, "lanes of each rank");
DEFINE_double(seconds, 1, "how long each scheme and size is measured in a turn");
DEFINE_int32(repeats, 1, "turns");

namespace poseidon {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

CollectiveOptions OptionsOf(const std::string& scheme) {
  CollectiveOptions options;
  options.chunk_bytes = ParseBytes(FLAGS_chunk);
  if (scheme == "ring") {
    options.scheme = CollectiveScheme::kRing;
  } else if (scheme == "halving-doubling") {
    options.scheme = CollectiveScheme::kHalvingDoubling;
  } else if (scheme == "torus") {
    options.scheme = CollectiveScheme::kTorus;
    for (const std::string& size : Split(FLAGS_grid, 'x')) {
      options.grid.push_back({.size = std::stoi(size)});
    }
  } else if (scheme != "auto") {
    throw ConfigError("no scheme '" + scheme + "'");
  }
  return options;
}

struct Measurement {
  std::vector<double> seconds;  // a call each, on rank 0
  double cpu_seconds = 0;       // of all ranks
};

// Rank 0's number on all ranks.
int Agree(Communicator& all, int number) {
  std::vector<float> numbers(all.workers());
  numbers[all.rank()] = static_cast<float>(number);
  all.AllGather(numbers);
  return static_cast<int>(numbers[0]);
}

Measurement Measure(Communicator& all, std::vector<float>& floats,
                    const CollectiveOptions& options) {
  // The first call opens connections; the second says how many there will be.
  double call = 0;
  for (int i = 0; i < 2; ++i) {
    const double begin = Now();
    all.AllReduce(floats, options);
    call = Now() - begin;
  }
  const int rounds = Agree(all, std::clamp(static_cast<int>(FLAGS_seconds / call), 5, 5000));
  for (int i = 0; i < rounds / 5; ++i) all.AllReduce(floats, options);
  Measurement result;
  all.Barrier();
  const double cpu = CpuSeconds();
  for (int i = 0; i < rounds; ++i) {
    const double begin = Now();
    all.AllReduce(floats, options);
    result.seconds.push_back(Now() - begin);
  }
  std::vector<float> cpus(all.workers());
  cpus[all.rank()] = static_cast<float>(CpuSeconds() - cpu);
  all.AllGather(cpus);
  for (const float seconds : cpus) result.cpu_seconds += seconds;
  return result;
}

void Print(const std::string& size, const std::string& scheme, int workers, int64_t bytes,
           Measurement& all) {
  std::sort(all.seconds.begin(), all.seconds.end());
  const size_t count = all.seconds.size();
  const double gigabytes =
      2e-9 * (workers - 1) * static_cast<double>(bytes) * static_cast<double>(count);
  std::printf("%8s  %-16s %6zu  %9.3f %9.3f %9.3f  %6.3f\n", size.c_str(), scheme.c_str(), count,
              1e3 * all.seconds[0], 1e3 * all.seconds[count / 2],
              1e3 * all.seconds[std::min(count - 1, count * 99 / 100)],
              all.cpu_seconds / std::max(gigabytes, 1e-9));
  std::fflush(stdout);
}

void RunRank(int rank, const std::vector<std::string>& endpoints) {
  Communicator all({.rank = rank, .endpoints = endpoints, .lanes = FLAGS_lanes});
  if (rank == 0) {
    std::printf("%d ranks, %d lanes, chunk %s\n", all.workers(), FLAGS_lanes, FLAGS_chunk.c_str());
    std::printf("%8s  %-16s %6s  %9s %9s %9s  %6s\n", "bytes", "scheme", "calls", "min ms",
                "median", "p99", "CPU s/GB");
  }
  std::map<std::pair<std::string, std::string>, Measurement> measurements;
  for (int turn = 0; turn < FLAGS_repeats; ++turn) {
    for (const std::string& size : Split(FLAGS_sizes, ',')) {
      std::vector<float> floats(ParseBytes(size) / sizeof(float));
      for (const std::string& scheme : Split(FLAGS_schemes, ',')) {
        Measurement one = Measure(all, floats, OptionsOf(scheme));
        Measurement& sum = measurements[{size, scheme}];
        sum.seconds.insert(sum.seconds.end(), one.seconds.begin(), one.seconds.end());
        sum.cpu_seconds += one.cpu_seconds;
      }
    }
  }
  all.Barrier();
  if (rank != 0) return;
  for (const std::string& size : Split(FLAGS_sizes, ',')) {
    for (const std::string& scheme : Split(FLAGS_schemes, ',')) {
      Print(size, scheme, all.workers(), ParseBytes(size), measurements[{size, scheme}]);
    }
  }
}

int Guarded(int rank, const std::vector<std::string>& endpoints) {
  try {
    RunRank(rank, endpoints);
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    return static_cast<int>(error.exit_code());
  }
}

int Main() {
  if (FLAGS_rank >= 0) return Guarded(FLAGS_rank, Split(FLAGS_endpoints, ','));
  const std::vector<std::string> endpoints = FreeEndpoints(FLAGS_ranks);
  std::vector<pid_t> children;
  for (int rank = 1; rank < FLAGS_ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) _exit(Guarded(rank, endpoints));
    children.push_back(child);
  }
  int result = Guarded(0, endpoints);
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    if (status != 0) result = 1;
  }
  return result;
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  poseidon::bench::ParseFlags(
      &argc, &argv,
      "Times all-reduces among processes, on this machine or with --rank on several.");
  return poseidon::Main();
}
