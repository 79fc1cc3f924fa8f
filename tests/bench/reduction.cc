// How fast AddInto sums received frames, against what the memory of this machine can do.
//
//   bench_reduction [POOL]      POOL: bytes of each vector below, default 64MiB
//
// One thread adds frames of 64 KiB to 16 MiB into accumulators, as a lane of a server does. The
// nine vectors of the default pool are many times the last-level cache and are used in turn, so
// that every frame and accumulator comes from memory. A pool of 1MiB shows frames that the network
// stack has just left in the cache.
//
// The yardsticks run in the same loop, a frame of each in turn, so that a busy neighbor or a
// change of clock hits all alike. Each has vectors of its own, so that none finds data another has
// fetched:
//   stream     x[i] += y[i] on aligned floats: the same traffic (read 2, write 1)
//   stream3    z[i] = x[i] + y[i], STREAM's Add; the cache also reads z before it writes it
//   memcpy     read 1, write 1; the C library's non-temporal stores where it thinks them faster
// Bandwidth counts the bytes that the program names (12 a float, memcpy 8), as STREAM does. Printed
// are GB/s (10^9) of the fastest, the median and the 99th percentile frame. The ratio is AddInto's
// median to the best median of the yardsticks; the aim is 0.8.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/arithmetic/sum.h"
#include "core/error.h"
#include "core/units.h"
#include "tests/bench/usage.h"

namespace poseidon {
namespace {

constexpr size_t kFrameBytes[] = {64 << 10, 1 << 20, 2 << 20, 16 << 20};
// Enough that ten frames are slower than the p99.
constexpr size_t kFramesTimed = 1000;
// Page faults and the clock's ramp.
constexpr size_t kFramesWarmUp = 200;

struct Contender {
  std::string name;
  size_t bytes_per_float;                 // named by the program, reads and writes
  std::function<void(size_t begin)> run;  // one frame, from float `begin` of the vectors
  std::vector<double> seconds = {};       // of each frame timed, sorted at the end
};

// `pool` and `frame` in floats.
std::vector<Contender> MakeContenders(size_t pool, size_t frame) {
  const auto floats = [](size_t count) { return std::vector<float>(count, 1.0F); };
  std::vector<Contender> contenders;
  // A frame's floats lie behind its header, aligned for nothing.
  contenders.push_back(
      {"AddInto", 12, [=, x = floats(pool), y = floats(pool + 1)](size_t b) mutable {
         AddInto(std::span(x).subspan(b, frame),
                 std::as_bytes(std::span(y)).subspan(b * sizeof(float) + 1, frame * sizeof(float)));
       }});
  contenders.push_back({"stream", 12, [=, x = floats(pool), y = floats(pool)](size_t b) mutable {
                          for (size_t i = b; i < b + frame; ++i) x[i] += y[i];
                        }});
  contenders.push_back(
      {"stream3", 12, [=, x = floats(pool), y = floats(pool), z = floats(pool)](size_t b) mutable {
         for (size_t i = b; i < b + frame; ++i) z[i] = x[i] + y[i];
       }});
  contenders.push_back({"memcpy", 8, [=, x = floats(pool), y = floats(pool)](size_t b) mutable {
                          std::memcpy(&x[b], &y[b], frame * sizeof(float));
                        }});
  return contenders;
}

void TimeInTurn(std::vector<Contender>& contenders, size_t pool, size_t frame) {
  for (size_t i = 0; i < kFramesWarmUp + kFramesTimed; ++i) {
    const size_t begin = i % (pool / frame) * frame;
    for (Contender& contender : contenders) {
      const auto start = std::chrono::steady_clock::now();
      contender.run(begin);
      const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
      if (i >= kFramesWarmUp) contender.seconds.push_back(elapsed.count());
    }
  }
  for (Contender& contender : contenders) {
    std::sort(contender.seconds.begin(), contender.seconds.end());
  }
}

// GB/s of the frame that `percent` of the others were faster than.
double Bandwidth(const Contender& contender, size_t frame, size_t percent) {
  const double seconds = contender.seconds[(contender.seconds.size() - 1) * percent / 100];
  return static_cast<double>(frame * contender.bytes_per_float) / seconds / 1e9;
}

void Measure(size_t frame_bytes, size_t pool_bytes) {
  const size_t frame = frame_bytes / sizeof(float);
  const size_t pool = std::max(pool_bytes, frame_bytes) / sizeof(float);
  std::vector<Contender> contenders = MakeContenders(pool, frame);
  TimeInTurn(contenders, pool, frame);

  const std::string label = FormatBytes(static_cast<int64_t>(frame_bytes));
  double yardstick = 0;
  for (const Contender& contender : contenders) {
    const double median = Bandwidth(contender, frame, 50);
    if (&contender != &contenders.front()) yardstick = std::max(yardstick, median);
    std::printf("%-8s %-8s %8.1f %8.1f %8.1f\n", label.c_str(), contender.name.c_str(),
                Bandwidth(contender, frame, 0), median, Bandwidth(contender, frame, 99));
  }
  std::printf("%-8s ratio    %17.2f\n", label.c_str(),
              Bandwidth(contenders.front(), frame, 50) / yardstick);
}

void Main(const std::string& pool) {
  const auto pool_bytes = static_cast<size_t>(ParseBytes(pool));
  std::printf("pool %s\n%-8s %-8s %8s %8s %8s  GB/s\n", pool.c_str(), "frame", "", "fastest",
              "median", "p99");
  for (size_t frame_bytes : kFrameBytes) Measure(frame_bytes, pool_bytes);
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  poseidon::bench::ShowHelp(argc, argv,
                            "bench_reduction [POOL]\n\nSums of received frames against the speed "
                            "of memory; POOL (64MiB) are the bytes of each "
                            "vector.");
  try {
    poseidon::Main(argc > 1 ? argv[1] : "64MiB");
  } catch (const poseidon::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
}
