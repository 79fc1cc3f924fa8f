// KvPair: one chunk of a bucket on the server that owns it.
//
// A pair holds the chunk's values and optimizer state and gathers one gradient from each worker for
// each iteration. With the last one of an iteration it applies the update rule, once, to their mean
// (the paper's KV store, section 4.2), or, where the workers update, makes their sum the answer.
//
// How far workers run apart is one number s, the plan's staleness. A worker whose gradient of
// iteration t has come is answered with the values for iteration t + 1 as soon as the updates of
// t + 1 - s iterations are applied: with s = 0 all together (BSP); with s > 0 the fastest is up to
// s iterations ahead of the slowest, and the gradients of s + 1 iterations are summed side by side
// (SSP: Ho et al., NIPS 2013). With s = -1 each gradient is an update of its own, answered at once,
// with the learning rate / workers: as many as there are workers move the parameters as far as one
// update of BSP. After the last iteration all workers are answered together, with what they have
// come to.
//
// In a job that goes on after the loss of a server a second one backs the pair up: it has a pair of
// the same chunk, to which it applies the sums that the owner sends it. Both keep what they had
// before the last update, too, for that is how far the job may go back (docs/recovery.md).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/arithmetic/codec.h"
#include "core/arithmetic/update_rule.h"
#include "core/payload.h"
#include "core/time.h"
#include "proto/bucket.h"
#include "server/accumulator_pool.h"
#include "server/chunk_state.h"
#include "server/gather_result.h"
#include "server/iteration_sum.h"

namespace poseidon {

// Not thread-safe: a pair belongs to one lane.
class KvPair {
 public:
  // Combinations that can't work, such as a codec without update_at_workers, or staleness with it,
  // are the planner's to refuse.
  struct Options {
    int workers = 1;
    bool deterministic = false;      // sum in the order of workers
    int staleness = 0;               // see above
    int64_t iterations = 0;          // of the training; 0: not known, so none is the last
    bool update_at_workers = false;  // answer with the sum of the gradients
    Codec codec;                     // of gradients and sums; values are always float32
    // The first values are the workers' affair: none come here. With update_at_workers only.
    bool workers_hold_values = false;
    // The plan's first iteration. Unless it is 0, optimizer state comes with the initial values.
    int64_t start_iteration = 0;
    // Another server has a pair of the same chunk. Under BSP only, where the servers update.
    bool backed_up = false;
    // This is the pair that backs the other up.
    bool is_backup = false;
    // The job may go back by an iteration: what the codec had not sent of the sums before the last
    // one is kept, too.
    bool keeps_residual = false;
  };

  // How many iterations can be open at once: buffers that a pair borrows for their sums.
  static int OpenIterations(int staleness);
  // Floats that a pair of `size` floats keeps besides its values: optimizer state or, where the
  // workers update, the codec's residual.
  static int64_t StateFloats(const Options& options, const UpdateRule& rule, int64_t size);
  // Floats that it needs.
  static int64_t MemoryFloats(const Options& options, const UpdateRule& rule, int64_t size);

  // `memory`: MemoryFloats() zeros that outlive the pair; empty for phantoms, which count and time
  // everything but hold no floats. `size` is in floats, the segments' together.
  KvPair(const Options& options, int64_t size, std::vector<UpdateSegment> segments,
         std::span<float> memory);

  const Options& options() const { return options_; }
  int64_t size() const { return size_; }
  // Iterations whose updates are applied: the oldest whose gradients are gathered. Under staleness
  // -1 gradients applied.
  int64_t iteration() const { return iteration_; }
  // All that worker 0 gives it at the start is here.
  bool initialized() const { return has_values_ && has_state_; }

  // Worker 0's first values. False (and nothing happens) if they are there already or do not fit.
  bool Initialize(const Payload& values);
  // Likewise the optimizer state, in a plan that does not start at iteration 0, if it is kept here.
  bool InitializeState(const Payload& state, const UpdateRule& rule);
  // Takes a worker's gradient, applies what is complete, says who can be answered. `groups`: of a
  // rule of torch.optim's, what is said with the gradient (proto/bucket.h: UpdateSegmentwise); the
  // last gradient's are applied, so all must say the same.
  GatherResult Add(int worker, int64_t iteration, const Payload& gradient, Time now,
                   const UpdateRule& rule, AccumulatorPool& pool,
                   std::span<const ParameterGroup> groups = {});

  // Of the pair that backs another up, instead of Add: applies the sum of all workers' gradients of
  // `iteration`, as the owner did.
  FrameStatus Replicate(int64_t iteration, const Payload& sum, const UpdateRule& rule,
                        AccumulatorPool& pool, std::span<const ParameterGroup> groups = {});
  // Of a pair that is backed up by another: the sum that was applied last, until the next one is;
  // empty for phantoms.
  std::span<const float> last_sum() const { return last_sum_; }
  // For whose forward pass it has values and optimizer state; nullopt before it is initialized.
  std::optional<int64_t> version() const;
  // What it has, or had before the last update, for the forward pass of `iteration`; nullopt if
  // that is neither. backed_up: values and optimizer state; keeps_residual: that, in the latter's
  // place.
  std::optional<ChunkState> At(int64_t iteration) const;
  // Starts with that of a pair before, in a plan that starts there.
  void Restore(const ChunkState& state);

  // The iteration whose forward pass the worker is answered for: all its gradients before are here.
  int64_t clock(int worker) const { return clocks_[worker]; }
  // Whether answers are sums of gradients: where the workers update, after the initial values.
  bool answers_sums() const {
    return options_.update_at_workers && iteration_ > options_.start_iteration;
  }
  // What workers are answered with, in bytes; and itself, empty for phantoms. It changes with the
  // next update: under staleness 0 no earlier than all workers have had it, else at any time.
  size_t answer_size() const;
  std::span<const std::byte> answer() const;
  // StateFloats() floats; empty for phantoms.
  std::span<const float> state() const { return state_; }

  // Whether some but not all gradients of the oldest iteration are here; since when; whose are
  // missing. Under staleness -1, where nobody waits before the end: whether some worker has more to
  // send; when the most silent one was heard last; who that is.
  bool open() const;
  Time open_since() const;
  std::vector<int> missing() const;
  // Of which iteration they are missing, where it is open.
  int64_t awaited_iteration() const;

 private:
  bool asynchronous() const { return options_.staleness < 0; }
  // A worker at the end of the training waits for all others.
  bool ended(int worker) const {
    return options_.iterations > 0 && clocks_[worker] == options_.iterations;
  }
  // Iterations that have to be applied before the worker is answered.
  int64_t awaited(int worker) const {
    return clocks_[worker] - (ended(worker) ? 0 : options_.staleness);
  }
  GatherResult AddAsynchronous(int worker, int64_t iteration, IterationSum& sum, Time now,
                               const UpdateRule& rule, AccumulatorPool& pool);
  void Apply(std::span<float> sum, int64_t iteration, const UpdateRule& rule,
             std::span<const ParameterGroup> groups);
  std::vector<int> CompleteOldest(int last, Time now, const UpdateRule& rule, AccumulatorPool& pool,
                                  std::span<const ParameterGroup> groups);

  Options options_;
  int64_t size_;
  std::vector<UpdateSegment> segments_;
  // The values; where the workers update, from the first iteration on the packed sum.
  std::span<float> values_;
  // Optimizer state; where the workers update, the codec's residual.
  std::span<float> state_;
  // backed_up: values, then optimizer state, as they were before the last update; keeps_residual:
  // the residual.
  std::span<float> previous_;
  std::span<float> last_sum_;  // see last_sum()
  bool has_values_;            // or never gets any
  bool has_state_;             // or begins with zeros
  int64_t iteration_;
  std::vector<int64_t> clocks_;     // by worker
  std::vector<IterationSum> sums_;  // iteration t is gathered in sums_[t % size]
  Time open_since_{};
  // Under staleness -1: when each worker's last gradient came; the first of all, for those who have
  // not sent one.
  std::vector<Time> heard_;
};

}  // namespace poseidon
