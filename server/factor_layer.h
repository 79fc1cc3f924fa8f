// FactorLayer: an inner-product layer on the one server that owns all of it, under the scheme ADAM
// (Chilimbi et al., Project Adam, OSDI 2014, section 4.2): workers send the factors u and v of
// their gradients, and get the whole layer's new values back.
//
// The factors are stacked in the order of ranks; with the last one, one matrix product sums the
// gradients of all workers, whatever order they came in. It is cut into slices, as the update is
// (transport/actor.h, Work). Bulk-synchronous.
//
// In a job that goes on after the loss of a server a second one has the same layer: the owner sends
// it the factors as they come, and it makes the same product and update of them. Both keep what
// they had before the last update, for that is how far the job may go back (docs/recovery.md).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/arithmetic/update_rule.h"
#include "core/payload.h"
#include "core/time.h"
#include "proto/bucket.h"
#include "server/chunk_state.h"
#include "transport/frame_status.h"

namespace poseidon {

// Not thread-safe: a layer belongs to one lane.
class FactorLayer {
 public:
  static constexpr uint32_t kFactors = 2;  // of a worker: u, v

  struct Shape {
    int workers = 1;
    int64_t outputs = 0;
    int64_t inputs = 0;
    int64_t rows = 0;    // of one worker's factors
    int64_t floats = 0;  // outputs * inputs, and as many again as outputs where there is a bias
    // The plan's first iteration. Unless it is 0, optimizer state comes with the initial values.
    int64_t start_iteration = 0;
    // Another server has the layer, too.
    bool backed_up = false;
  };

  static int64_t MemoryFloats(const Shape& shape, const UpdateRule& rule);

  // `memory`: MemoryFloats() zeros that outlive the layer; empty for phantoms, which count and time
  // everything but hold no floats. The chunks are the bucket's, the segments the whole layer's.
  FactorLayer(const Shape& shape, std::vector<Chunk> chunks, std::vector<UpdateSegment> segments,
              std::span<float> memory);

  // The iteration whose factors are gathered.
  int64_t iteration() const { return iteration_; }
  const std::vector<Chunk>& chunks() const { return chunks_; }
  int64_t size() const { return shape_.floats; }
  // All that worker 0 gives it at the start is here: of one chunk, of all.
  bool initialized(uint32_t chunk) const { return has_values_[chunk] && has_state_[chunk]; }
  bool initialized() const;

  // Worker 0's first values of a chunk. False (and nothing happens) if there is no such chunk, if
  // they are there already or do not fit.
  bool Initialize(uint32_t chunk, const Payload& values);
  // Likewise the optimizer state, in a plan that does not start at iteration 0.
  bool InitializeState(uint32_t chunk, const Payload& state, const UpdateRule& rule);
  // Takes a worker's u (factor 0: rows x outputs) or v (1: rows x inputs), row-major. If it is the
  // last one, complete() is true, until RebuildAndUpdate has been carried out and then Finish.
  FrameStatus Add(int worker, int64_t iteration, uint32_t factor, const Payload& body, Time now);
  // All factors of the iteration are here.
  bool complete() const { return arrived_count_ == static_cast<int>(kFactors) * shape_.workers; }
  // What applies the update rule, which must outlive it, to the factors.
  std::vector<SlicedArithmetic> RebuildAndUpdate(const UpdateRule& rule);
  // That is done: all workers can be answered.
  void Finish();

  // A chunk's values; empty for phantoms. They change when all workers' next factors are here, so
  // when all have had them.
  std::span<const float> values(uint32_t chunk) const;
  // A chunk's optimizer state; empty for phantoms.
  std::span<const float> state(uint32_t chunk) const;

  // As of KvPair, of a chunk.
  std::optional<int64_t> version(uint32_t chunk) const;
  std::optional<ChunkState> At(uint32_t chunk, int64_t iteration) const;
  void Restore(uint32_t chunk, const ChunkState& state);

  // Whether some but not all factors are here; since when; of whom one or both are missing.
  bool open() const { return arrived_count_ > 0 && !complete(); }
  Time open_since() const { return open_since_; }
  std::vector<int> missing() const;
  int64_t awaited_iteration() const { return iteration_; }

 private:
  // The chunk's part of such a span of values, or of optimizer state, of the whole layer.
  std::span<float> ValuesOf(uint32_t chunk, std::span<float> all) const;
  std::span<float> StateOf(uint32_t chunk, std::span<float> all) const;
  void Store(int worker, uint32_t factor, const Payload& body);

  Shape shape_;
  std::vector<Chunk> chunks_;
  std::vector<UpdateSegment> segments_;
  std::span<float> values_;
  std::span<float> optimizer_state_;
  // backed_up: both before the last update.
  std::span<float> previous_values_;
  std::span<float> previous_state_;
  std::span<float> gradient_;
  std::array<std::span<float>, kFactors> stacks_;  // of all workers
  std::vector<bool> has_values_;                   // by chunk
  std::vector<bool> has_state_;                    // or begins with zeros
  int64_t iteration_;
  std::vector<std::array<bool, kFactors>> arrived_;  // by worker
  int arrived_count_ = 0;
  Time open_since_{};
};

}  // namespace poseidon
