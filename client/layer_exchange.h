// LayerExchange: what stands between a device and the network, as DeviceStage sees it: a Session,
// or a test's own. The host's half of the way of a gradient.
//
// Thread safety: the training thread's, but for Wake.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "client/gradient_buffers.h"

namespace poseidon {

class LayerExchange {
 public:
  // A layer's host memory in the current iteration. Whoever has a copy of `owner` may go on using
  // it after the job has gone over to another plan.
  struct Buffers {
    std::span<float> values;
    GradientBuffers gradient;
    std::shared_ptr<const void> owner;
  };

  virtual ~LayerExchange() = default;

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
  // takes too long.
  virtual void WaitUntil(const std::function<bool()>& done, const std::string& waiting_for) = 0;
  // From any thread; returns at once.
  virtual void Wake() = 0;
};

}  // namespace poseidon
