// SimLane: one lane of one simulated node, packed into a word.
//
// A simulation of thousands of nodes holds a route from every node to every lane of every other
// node, so that the size of one entry decides how much memory a cluster takes.
#pragma once

#include <cstdint>

namespace poseidon {

// Index of a simulated process: 0, 1, ... A process that is started again is a new one.
using SimNode = int;

class SimLane {
 public:
  // kApplicationLane, -1, is the first.
  static constexpr int kFirst = -1;
  // 8 bits: a lane is a thread on a real node, and no machine has hundreds to spare.
  static constexpr int kLast = 253;
  // 24 bits, less the value that means "nowhere".
  static constexpr SimNode kLastNode = (1 << 24) - 2;

  // Nowhere.
  constexpr SimLane() = default;
  // `node` is in [0, kLastNode], `lane` in [kFirst, kLast].
  constexpr SimLane(SimNode node, int lane)
      : packed_(static_cast<uint32_t>(node) << 8 | static_cast<uint32_t>(lane - kFirst)) {}
  static constexpr SimLane FromPacked(uint32_t packed) {
    SimLane result;
    result.packed_ = packed;
    return result;
  }

  constexpr bool nowhere() const { return packed_ == kNowhere; }
  constexpr SimNode node() const { return static_cast<SimNode>(packed_ >> 8); }
  constexpr int lane() const { return static_cast<int>(packed_ & 0xff) + kFirst; }
  constexpr uint32_t packed() const { return packed_; }

 private:
  static constexpr uint32_t kNowhere = 0xffffffff;
  uint32_t packed_ = kNowhere;
};

}  // namespace poseidon
