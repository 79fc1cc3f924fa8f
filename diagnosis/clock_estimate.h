// ClockEstimate: how the clocks of machines differ, from the frames that they have exchanged.
//
// A frame arrives after it was sent. So of two clocks each frame from A to B says at most how far B
// is ahead of A, and each from B to A at least how far. The truth lies between the tightest of
// both, whatever the network did, and over a third machine they may be tighter still. Half of what
// is between them is the error: of two machines of one switch about half a round trip of its
// quickest frames.
//
//   const std::vector<ClockEstimate> clocks = EstimateClocks(3, readings);
//   const Time there = clocks[2].ToReference(time_of_clock_2);  // as clock 0 would have shown
#pragma once

#include <vector>

#include "core/time.h"

namespace poseidon {

// A frame that was sent at a time of one clock and arrived at a time of another.
struct ClockReading {
  int from = 0;  // index of the clock
  int to = 0;
  Time sent{};     // of `from`
  Time arrived{};  // of `to`
};

struct ClockEstimate {
  // False: no frames went there and back, so nothing is known, and it is taken for the reference.
  bool known = false;
  Duration offset{};  // the clock minus the reference, at `origin`
  Duration error{};   // the offset is off by at most so much, if clocks run evenly
  // By how much the clock runs faster than the reference, 1e-6 is a microsecond a second. 0 unless
  // the readings contradict that.
  double rate = 0;
  Time origin{};  // of the clock

  Time ToReference(Time time) const;
};

// Of each of the clocks, the first of which is the reference, whose estimate is all zero.
std::vector<ClockEstimate> EstimateClocks(int clocks, const std::vector<ClockReading>& readings);

}  // namespace poseidon
