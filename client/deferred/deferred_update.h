// DeferredUpdate: updates that need to see more of the gradient than one parameter's share of it.
// The exchange leaves the mean gradient with each parameter's state
// (core/arithmetic/update_rule.h), and every worker makes the same update of it.
//
//   clip_gradients   Caffe's: if the L2 norm of the whole gradient is above the limit, the gradient
//                    is multiplied with limit / norm. With iter_size Caffe compares the norm of the
//                    sum over the passes, not of their mean; so do we. Blobs with lr_mult 0 have no
//                    part in it: Caffe computes no gradient of theirs
//   LARS             You, Gitman and Ginsburg, arXiv 1708.03888, algorithm 1: a blob's rate is
//                    multiplied with trust |w| / (|g| + decay |w| + epsilon)
//
// Norms are summed in float64 in the order of the parameters, so all workers get the same bits. Not
// thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "core/arithmetic/update_rule.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

class DeferredUpdate {
 public:
  struct Options {
    std::optional<double> clip_gradients;
    std::optional<Lars> lars;
  };

  // The model's update rule is deferred. `model` must outlive this.
  DeferredUpdate(const ModelSpec& model, const Options& options);

  // Whether Begin has to see all layers before the first update.
  bool needs_all_layers() const { return options_.clip_gradients.has_value(); }
  // Before the updates of an iteration with `passes` passes; `state` gives a layer's optimizer
  // state with its gradient.
  void Begin(int64_t passes, const std::function<std::span<const float>(int layer)>& state);
  // The update of a layer's values by the gradient of `iteration`. `rule` is the model's, with the
  // plan's rates.
  void Apply(const UpdateRule& rule, int layer, int64_t iteration, std::span<float> values,
             std::span<float> state) const;

 private:
  float LearningRateScale(const UpdateRule& rule, const BlobSpec& blob,
                          std::span<const float> values, std::span<const float> state) const;
  // That of the layer's blobs that learn.
  double SquaredNormOfLayer(int layer, std::span<const float> state) const;
  // The squared norm of the gradients that lie behind the state.
  double SquaredNorm(std::span<const float> state) const;

  const ModelSpec& model_;
  Options options_;
  size_t stride_;             // floats of state for each parameter
  float gradient_scale_ = 1;  // by clipping
};

}  // namespace poseidon
