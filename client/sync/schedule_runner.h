// ScheduleRunner: carries out one worker's schedule for one chunk, iteration after iteration. Part
// of an actor: it neither waits nor sends, it says what is to be sent.
//
// Besides the steps themselves it keeps where it is in them and the frames that have come before
// their turn, so that the schedule's length costs no memory.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/steps.h"
#include "core/arithmetic/codec.h"
#include "core/payload.h"
#include "transport/frame_status.h"

namespace poseidon {

// Something to send.
struct ReduceFrame {
  int peer = 0;
  int step = 0;
  Payload body;
};

// Not thread-safe: lives on its lane.
class ScheduleRunner {
 public:
  // `codec` is fp32, fp16 or bf16. Where the range of a kRound is the whole sum it is multiplied by
  // `scale` before it is rounded: 1 / workers makes the all-reduce an average, and spares every
  // worker but the range's owner the multiplication. Iterations count from `first`.
  ScheduleRunner(Steps steps, const Codec& codec, float scale, int64_t first = 0);

  // Begins the next iteration in place on `floats`, to which the ranges of the
  // schedule refer; empty for phantoms, which have sizes only. The previous one must be done.
  // Appends to `out` what can be sent at once; its bodies are views of `floats` or, encoded, have
  // their own bytes. Once the iteration is done only bodies that are still under way hold the
  // owner; while a view does, `floats` must not be written.
  void Begin(std::span<float> floats, std::shared_ptr<const void> owner,
             std::vector<ReduceFrame>& out);
  // A frame of the current iteration, or of the next: a peer can be one ahead. Kept until its
  // operation's turn, then taken; appends what that lets be sent. Before the first Begin the
  // current iteration is the first.
  FrameStatus Receive(int64_t iteration, int peer, int step, const Payload& body,
                      std::vector<ReduceFrame>& out);

  // The next iteration to begin: all before it have.
  int64_t begun() const { return begun_; }
  // The last one that has begun is done: all its operations are carried out. True before the first.
  bool done() const { return next_ == steps_.size(); }
  // The worker whose frame is awaited, if one is.
  std::optional<int> missing() const;

 private:
  // Frames by the index of the operation that waits for them.
  using Early = std::map<int, Payload>;

  // Carries out operations until one has to wait.
  void Advance(std::vector<ReduceFrame>& out);
  Payload Body(const Range& range) const;
  void Take(const Operation& operation, const Payload& body);
  void Finish(const Range& range);
  Early& early(int64_t iteration) { return early_[iteration % 2]; }

  Steps steps_;
  Codec codec_;
  float scale_;
  int next_;  // operation
  std::span<float> floats_;
  std::shared_ptr<const void> owner_;
  int64_t begun_;
  Early early_[2];  // of iteration t at t % 2
};

}  // namespace poseidon
