// The Data layer: batches of an LMDB as tensors.
#pragma once

#include "worker/batch_reader.h"
#include "worker/torch_layer.h"

namespace poseidon {

// Its tops are views of the reader's memory, valid until the next Load.
class DataLayer : public TorchLayer {
 public:
  DataLayer(const LayerDescription& layer, const BatchReaderOptions& options)
      : reader_(layer, options), with_labels_(layer.tops.size() > 1) {}

  const BatchReader& reader() const { return reader_; }

  // The batch of `iteration`, which the next Forward gives; then `next` is read ahead. Throws
  // DataError.
  void Load(int64_t iteration, int64_t next) { batch_ = &reader_.Read(iteration, next); }

  Tensors Forward(const Pass& pass, const Tensors& bottoms, const Tensors& parameters) override;
  Tensors Backward(const Tensors& top_gradients, const ParameterGradients& gradients) override;

 private:
  BatchReader reader_;
  bool with_labels_;
  const Batch* batch_ = nullptr;
};

}  // namespace poseidon
