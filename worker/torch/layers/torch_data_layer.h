// Layers without bottoms: batches of samples as tensors.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "worker/engine/batch_reader.h"
#include "worker/torch/layers/torch_layer.h"

namespace poseidon {

// Where a batch goes.
struct BatchPlace {
  at::Device device = at::kCPU;
  EngineDevice* engine_device = nullptr;  // that batches are copied to; null: they stay on the host
  // Whether images' channels are to lie innermost. A layer's tops take the memory format of its
  // bottoms, so this decides for the whole net.
  bool channels_innermost = true;
};

// A layer that gives a batch an iteration. Its tops are views of memory that the next Load writes.
class DataLayer : public TorchLayer {
 public:
  // The batch of `iteration`, which the next Forward gives; then `next` may be read ahead. Throws
  // DataError.
  virtual void Load(int64_t iteration, int64_t next) = 0;

  // During the backward pass, again and again: if the next batch has been read, it is on its way to
  // the device. Waits for nothing.
  virtual void SendAhead() {}

  // Names samples in errors; null where there are no records.
  virtual const BatchReader* reader() const { return nullptr; }

  Tensors Backward(const Tensors& top_gradients, const ParameterGradients& gradients) override;
};

// Whether this layer has a DataLayer.
bool IsDataLayer(const LayerDescription& layer);

// A view of memory of the host, or on a device a copy; of images in the order that `place` says.
at::Tensor ToBatchTensor(std::span<const float> values, const Shape& shape,
                         const BatchPlace& place);

// Makes the layer for Data, ImageData, HDF5Data (files), DummyData (fillers), Input and MemoryData
// (options.feed), and Python without bottoms. Throws ConfigError for Input and MemoryData without a
// feed and for what a Python layer throws, and as BatchReader.
std::unique_ptr<DataLayer> MakeDataLayer(const LayerDescription& layer,
                                         const BatchReaderOptions& options,
                                         const BatchPlace& place = {});

// torch_python_layer.cc
std::unique_ptr<DataLayer> MakePythonData(const LayerDescription& layer,
                                          const BatchReaderOptions& options,
                                          const BatchPlace& place);

}  // namespace poseidon
