// ModelMemory: every buffer that a worker needs to synchronise a model, made once from the plan.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "proto/wire.pb.h"

namespace poseidon {

// The factors of all workers for one iteration, stacked in the order of ranks, so that one GEMM
// sums them: u is workers * rows x outputs, v is workers * rows x inputs, row-major.
struct FactorStack {
  std::span<float> u;
  std::span<float> v;
};

// One layer's buffers; empty spans where the scheme does not need them and for phantoms.
struct LayerMemory {
  std::span<float> values;    // parameters: the layer's blobs one after the other
  std::span<float> gradient;  // PS: of this worker, filled by the engine. SFB: the rebuilt sum
  std::span<float> history;   // SFB: optimiser state
  // SFB: iteration t uses stack t % 2. Two suffice: a worker that sends factors of t + 1 has
  // finished t, so it has had everybody's factors of t; nobody is more than one iteration ahead.
  std::array<FactorStack, 2> stacks;
};

// Immutable layout; what the spans point to is shared between the training thread and the lanes as
// client/session.h says. Frames on their way out share ownership.
class ModelMemory {
 public:
  // Throws Error if the machine does not have the memory. With `phantom` nothing is allocated.
  ModelMemory(const wire::PlanAndModel& plan, bool phantom);

  const LayerMemory& layer(int index) const { return layers_[index]; }
  // Bytes allocated.
  int64_t bytes() const { return bytes_; }

 private:
  std::span<float> Allocate(int64_t count);

  struct Free {
    void operator()(float* memory) const;
  };
  std::vector<LayerMemory> layers_;
  std::vector<std::unique_ptr<float, Free>> blocks_;
  int64_t bytes_ = 0;
};

}  // namespace poseidon
