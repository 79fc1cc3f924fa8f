// What it costs a lane to note a frame for `poseidon explain` (transport/events/), with its clock.
//
//   bench_events [ROUNDS]
//
// A round notes a million frames, as a lane does: a look at the clock, the event, the ring. Beside
// it is the look at the clock alone. Printed are nanoseconds a frame, min, median and max of the
// rounds, and the frames a second at which noting them takes 0.5 % of one core.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "core/steady_now.h"
#include "tests/bench/usage.h"
#include "transport/events/node_event.h"

namespace poseidon {
namespace {

constexpr int kFrames = 1000000;
constexpr size_t kKept = 2048;  // ZmqOptions.kept_events
constexpr double kShare = 0.005;

// Nanoseconds a frame, of each round, ascending.
std::vector<double> Measure(int rounds, const std::function<void(int)>& note) {
  std::vector<double> nanoseconds;
  for (int round = 0; round < rounds; ++round) {
    const Time begin = SteadyNow();
    for (int frame = 0; frame < kFrames; ++frame) note(frame);
    nanoseconds.push_back(static_cast<double>((SteadyNow() - begin).count()) / kFrames);
  }
  std::ranges::sort(nanoseconds);
  return nanoseconds;
}

double Show(const char* name, const std::vector<double>& sorted) {
  const double median = sorted[(sorted.size() - 1) / 2];
  std::printf("%-16s %8.1f %8.1f %8.1f\n", name, sorted.front(), median, sorted.back());
  return median;
}

void Main(int rounds) {
  EventRing ring(kKept);
  Envelope envelope;
  envelope.kind = MessageKind::kGradient;
  const Address peer{{Role::kServer, 1}, kFirstDataLane};
  // Read at the end, so that no look at the clock is left out.
  Time sum{};
  std::printf("%-16s %8s %8s %8s  ns a frame, %d rounds\n", "", "min", "median", "max", rounds);
  Show("clock alone", Measure(rounds, [&](int) { sum += SteadyNow(); }));
  const double median = Show("clock and event", Measure(rounds, [&](int frame) {
                               envelope.chunk = static_cast<uint32_t>(frame);
                               ring.Add(FrameEvent(NodeEvent::Type::kSent, SteadyNow(), envelope,
                                                   peer, static_cast<uint64_t>(frame)));
                             }));
  std::printf("%.1f %% of a core: %.0f frames a second\n", 100 * kShare, kShare * 1e9 / median);
  if (ring.count() != static_cast<uint64_t>(rounds) * kFrames || sum == Time{}) std::abort();
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  poseidon::bench::ShowHelp(argc, argv, "bench_events [ROUNDS]: what noting a frame costs a lane.");
  poseidon::Main(argc > 1 ? std::max(1, std::atoi(argv[1])) : 21);
}
