// ModelMemory: every buffer that a worker needs to synchronize a model, made once from the plan.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/arithmetic/codec.h"
#include "core/arithmetic/gradient_buffers.h"
#include "core/arithmetic/update_rule.h"
#include "device/device.h"
#include "device/pinned_pool.h"
#include "proto/wire.pb.h"

namespace poseidon {

// One bucket's buffers; empty spans where the scheme does not need them and for phantoms.
struct BucketMemory {
  std::span<float> values;  // parameters: the layers' blobs one after the other
  // This worker's, filled by the engine; iteration t uses gradients[t % 2]. The two are the same
  // memory where a server's answer proves that it has taken the gradient. In an all-reduce nothing
  // proves that a peer has taken what was last sent to it until that peer has taken part in the
  // next iteration; so they are two, unless there is no peer. Under SFB the rebuilt sum; none where
  // devices rebuild it. In a job that recovers they are always two, see `before`.
  std::array<std::span<float>, 2> gradients;
  // Optimizer state, if the workers update, for the forward pass of iteration t at t % 2; the same
  // memory unless the job recovers. That of rule MeanGradient, a mean of gradients, takes the place
  // of this worker's gradient, gradients[0], where the two above are the same memory.
  std::array<std::span<float>, 2> optimizer_state;
  // In a job that recovers, if the workers update: what the values were before the update by the
  // gradients of iteration t, at t % 2. It takes the place of those gradients, which the update is
  // the last to read; of an all-reduce, whose frames may still be under way, one of its own.
  std::array<std::span<float>, 2> before;
  std::span<float> residual;  // what a codec with error feedback has not sent yet
  // Where devices pack: the gradient as it goes on the wire, instead of gradients[0]; and of each
  // chunk its part of that.
  std::span<std::byte> packed;
  std::vector<std::span<std::byte>> packed_chunks;
  // SFB, ADAM: iteration t uses stack t % 2. Under ADAM, whose servers stack them, only this
  // worker's rows are there. Two suffice: a worker that sends factors of t + 1 has
  // finished t, so it has had everybody's factors of t; nobody is more than one iteration ahead.
  std::array<FactorStack, 2> stacks;
};

// Where a layer's floats lie in its bucket.
struct LayerPlace {
  int bucket = 0;
  int64_t offset = 0;
  int64_t size = 0;
};

// Immutable layout; what the spans point to is shared between the training thread and the lanes as
// client/worker_session.h says. Frames on their way out share ownership.
class ModelMemory {
 public:
  // What the worker's devices have to do with it, as WorkerSessionOptions says.
  struct Devices {
    AllocateBlock allocate = {};
    bool update_factors = false;
    bool pack = false;
  };
  struct Options {
    bool phantom = false;   // nothing is allocated
    bool recovers = false;  // an update leaves what was there before
    Devices devices;
  };

  // Throws Error if the machine does not have the memory.
  ModelMemory(const wire::PlanAndModel& plan, const Options& options);
  ModelMemory(const wire::PlanAndModel& plan, bool phantom, const Devices& devices)
      : ModelMemory(plan, Options{.phantom = phantom, .recovers = false, .devices = devices}) {}
  ModelMemory(const wire::PlanAndModel& plan, bool phantom)
      : ModelMemory(plan, phantom, Devices()) {}

  const BucketMemory& bucket(int index) const { return buckets_[phantom_ ? 0 : index]; }
  const LayerPlace& place(int layer) const { return places_[layer]; }
  // The layer's parameters; empty for phantoms.
  std::span<float> values(int layer) const;
  // Where the layer's gradient of `iteration` goes unless factors are sent; empty for phantoms.
  std::span<float> gradient(int layer, int64_t iteration) const;
  // Bytes allocated.
  int64_t bytes() const { return bytes_ + (pinned_ ? static_cast<int64_t>(pinned_->bytes()) : 0); }

 private:
  void PlaceLayers(const wire::PlanAndModel& plan);
  // `keeps`: an update leaves what was there before.
  void AllocateGradients(const wire::PlanAndModel& plan, const BucketPlan& bucket, bool keeps,
                         BucketMemory& memory);
  void AllocateOptimizerState(const UpdateRule& rule, int64_t parameters, bool keeps,
                              BucketMemory& memory);
  void AllocateFactors(const wire::PlanAndModel& plan, const BucketPlan& bucket,
                       BucketMemory& memory);
  void AllocatePacked(const Codec& codec, const BucketPlan& bucket, BucketMemory& memory);
  std::span<float> Allocate(int64_t count);

  struct Free {
    void operator()(float* memory) const;
  };
  bool phantom_;
  std::vector<BucketMemory> buckets_;  // of phantoms, which are all empty, one
  std::vector<LayerPlace> places_;
  std::vector<std::unique_ptr<float, Free>> blocks_;
  std::optional<PinnedPool> pinned_;  // instead of blocks, where it has memory
  int64_t bytes_ = 0;                 // of the blocks
};

}  // namespace poseidon
