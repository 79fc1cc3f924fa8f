// KvPair: one chunk of a layer on the server that owns it.
//
// A pair holds the chunk's values and optimiser state and gathers one gradient from each worker;
// with the last one it applies the update rule (bulk-synchronous, the paper's KV store,
// section 4.2).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/payload.h"
#include "core/time.h"
#include "core/update_rule.h"
#include "server/accumulator_pool.h"

namespace poseidon {

// Not thread-safe: a pair belongs to one lane.
class KvPair {
 public:
  // A run of floats of the chunk that belong to one blob.
  struct Segment {
    int64_t size = 0;
    Multipliers multipliers;
  };
  struct Options {
    int workers = 1;
    bool deterministic = false;  // sum in worker order
  };
  enum class Outcome {
    kCounted,   // taken; others are still missing
    kComplete,  // taken, and it was the last one: call Update
    kOld,       // of an iteration already done, or the second from this worker: ignored
    kForeign,   // of an iteration that can't be yet, or not as long as the chunk: ignored
  };

  // `values` and `history` are this pair's part of the shard's memory (empty for phantoms, which
  // count and time everything but hold no floats). `size` is in floats.
  KvPair(const Options& options, int64_t size, std::vector<Segment> segments,
         std::span<float> values, std::span<float> history);

  int64_t size() const { return size_; }
  std::span<const float> values() const { return values_; }
  // The iteration whose gradients are gathered; values() are those for its forward pass.
  int64_t iteration() const { return iteration_; }
  bool initialized() const { return initialized_; }

  // Worker 0's first values. False (and nothing happens) if they are there already or do not fit.
  bool Initialize(const Payload& values);

  Outcome Add(int worker, int64_t iteration, const Payload& gradient, Time now,
              AccumulatorPool& pool);
  // Applies the gathered sum / workers and moves to the next iteration.
  void Update(const UpdateRule& rule, AccumulatorPool& pool);

  // When the first gradient of the current iteration came; only meaningful while missing() is not
  // all workers.
  Time opened() const { return opened_; }
  // Whether some but not all gradients of the iteration are here.
  bool open() const { return arrived_count_ > 0; }
  std::vector<int> missing() const;

 private:
  void Sum(const Payload& gradient, AccumulatorPool& pool);
  void SumInOrder(int worker, const Payload& gradient, AccumulatorPool& pool);

  Options options_;
  int64_t size_;
  std::vector<Segment> segments_;
  std::span<float> values_;
  std::span<float> history_;
  std::span<float> sum_;  // borrowed from the pool while gradients are gathered
  bool initialized_ = false;
  int64_t iteration_ = 0;
  std::vector<bool> arrived_;
  int arrived_count_ = 0;
  Time opened_{};
  // Deterministic only: gradients that wait for those of lower ranks, and the next rank to add.
  std::vector<Payload> early_;
  int next_in_order_ = 0;
};

}  // namespace poseidon
