// LayerExchange: what stands between a device and the network, as DeviceStaging sees it: a port of
// the worker's protocol (WorkerSession::exchange), or a test's own. The host's half of the way of a
// gradient.
//
// Thread safety: the training thread's, but for Wake.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "client/sync/dense_update.h"
#include "core/arithmetic/gradient_buffers.h"
#include "core/time.h"
#include "core/trace.h"
#include "device/factor_update.h"

namespace poseidon {

class LayerExchange {
 public:
  // A layer's host memory in the current iteration. `values` are what is new when the layer is
  // fresh: its parameters or, under rule MeanGradient, its mean gradient. Whoever has a copy of
  // `owner` may go on using it after the job has gone over to another plan.
  struct Buffers {
    std::span<float> values;
    GradientBuffers gradient;
    std::shared_ptr<const void> owner;
  };

  // Consecutive layers that leave for the network, and become fresh, together. Their values, and
  // their gradients, lie one behind the other.
  struct Bucket {
    int first_layer = 0;
    int layers = 1;
    std::string name;
  };

  virtual ~LayerExchange() = default;

  // Of the present plan: all layers, in order.
  virtual std::vector<Bucket> buckets() const = 0;
  virtual int64_t iteration() const = 0;
  virtual const std::string& LayerName(int layer) const = 0;
  virtual Buffers buffers(int layer) const = 0;
  // The layer's gradient of the current iteration is in its buffers.
  virtual void GradientReady(int layer) = 0;
  // Whether the layer's values are those for the forward pass of `iteration`, the current one or
  // the next.
  virtual bool IsFresh(int layer, int64_t iteration) const = 0;

  // Handles what comes until done() says so. Asks that first, then after whatever has come, after a
  // Wake (also one from before the call), and several times a second, so that it can throw for
  // other reasons. Throws Error if the job ends, and DeadlineExceeded, naming `waiting_for`, if it
  // takes too long; and Rewound, but not to who has been told so already.
  virtual void WaitUntil(const std::function<bool()>& done, const std::string& waiting_for) = 0;
  // From any thread; returns at once.
  virtual void Wake() = 0;

  // A layer that the devices update themselves: but for the first time under a plan, fresh for an
  // iteration is to say that all factors of the one before are here. None: the layer's values come
  // from the exchange, or there is a dense_update.
  virtual std::optional<ProductUpdate> product_update(int /*layer*/) const { return std::nullopt; }
  // Likewise of a layer whose update is made from a gradient: fresh is to say that what has been
  // reduced of all workers' is in reduced_gradient.
  virtual std::optional<DenseUpdate> dense_update(int /*layer*/) const { return std::nullopt; }
  // Whether the gradient of the current iteration is all that there is for such an update, so that
  // it needs not come to the host. A bucket's stay if all of its layers' do.
  virtual bool gradient_stays(int /*layer*/) const { return false; }
  virtual std::span<float> reduced_gradient(int /*layer*/, int64_t /*iteration*/) const {
    return {};
  }
  // What such layers need: all factors of an iteration, valid until its next gradient leaves; and
  // the optimizer state with which the plan began. Values and state in the host's memory are those
  // of an earlier iteration until DeviceStaging::SyncToHost.
  virtual FactorStack factors(int /*layer*/, int64_t /*iteration*/) const { return {}; }
  virtual std::span<float> optimizer_state(int /*layer*/) const { return {}; }
  // Where the devices put the layer's gradient packed; empty: into buffers(), as it is.
  virtual PackedGradient packed_gradient(int /*layer*/) const { return {}; }
  // The KV pairs that the first device packs with error feedback, instead of copying gradients.
  // Their residuals are the first under a plan; those in the host's memory are then of an earlier
  // iteration until DeviceStaging::SyncToHost.
  virtual std::vector<PackedChunk> packed_chunks() const { return {}; }

  // So long the first device's work has stood still for the current iteration's values, before its
  // first GradientReady; after the last iteration for the values that came of it. In parts.
  virtual void AddExposed(Duration /*stood_still*/) {}

  // Where copies are written down; outlives the staging. Null: nowhere.
  virtual Trace* trace() { return nullptr; }
};

}  // namespace poseidon
