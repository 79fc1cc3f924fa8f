// IterationSum: gathers the gradients of one iteration of one chunk and adds them up in float32.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/arithmetic/codec.h"
#include "core/payload.h"
#include "server/accumulator_pool.h"

namespace poseidon {

// Not thread-safe. Whoever owns it keeps a worker from adding twice. Borrows one buffer of the pool
// while there is anything to add, and for a moment a second one.
class IterationSum {
 public:
  // Sums `gradients` of `floats` floats each, packed by `codec`. `in_order`: in whatever order
  // they come in, they are summed in the order of their workers' ranks, 0 .. gradients - 1; those
  // that come early are kept as they came.
  IterationSum(int gradients, bool in_order, const Codec& codec, int64_t floats);

  // False, and nothing happens, if it is none of the codec's bodies of this many floats.
  bool Add(int worker, const Payload& gradient, AccumulatorPool& pool);

  int count() const { return count_; }
  bool complete() const { return count_ == gradients_; }
  // The sum once complete; empty for phantoms.
  std::span<float> sum() { return sum_; }
  // Gives the memory back; for the next iteration.
  void Reset(AccumulatorPool& pool);

 private:
  bool Accumulate(const Payload& gradient, AccumulatorPool& pool);
  void AccumulateEarly(AccumulatorPool& pool);
  // A frame that waits is refused at once or never.
  bool WellFormed(const Payload& gradient, AccumulatorPool& pool) const;

  int gradients_;
  Codec codec_;
  int64_t floats_;
  int count_ = 0;
  std::span<float> sum_;  // borrowed from the pool
  // In order only: gradients that wait for those of lower ranks, and the next rank to add.
  std::vector<Payload> early_;
  int next_in_order_ = 0;
};

}  // namespace poseidon
