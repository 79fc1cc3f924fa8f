#include "worker/torch/layers/torch_data_layer.h"

#include <ATen/ops/from_blob.h>

#include <utility>

#include "caffe_adapter/net/filler.h"
#include "core/error.h"
#include "core/random.h"
#include "worker/torch/layers/torch_device.h"

namespace poseidon {
namespace {

// One channel lies alike in both formats: only its stride tells.
at::Tensor ChannelsInnermost(const at::Tensor& images) {
  if (images.size(1) > 1) return images.contiguous(at::MemoryFormat::ChannelsLast);
  const int64_t image = images.stride(0);
  return images.as_strided(images.sizes(), {image, 1, images.size(3), 1});
}

at::Tensor InOrder(const at::Tensor& tensor, const BatchPlace& place) {
  return tensor.dim() == 4 && place.channels_innermost ? ChannelsInnermost(tensor) : tensor;
}

// A view of memory of the place's device. For at::from_blob, which takes no const memory; no layer
// writes to its bottoms.
at::Tensor ViewInOrder(std::span<const float> values, const Shape& shape, const BatchPlace& place) {
  const std::span<float> readable(const_cast<float*>(values.data()), values.size());
  return InOrder(View(readable, shape, place.device), place);
}

class FileLayer : public DataLayer {
 public:
  FileLayer(const LayerDescription& layer, const BatchReaderOptions& options,
            const BatchPlace& place)
      : reader_(layer, options, place.engine_device), place_(place) {}

  const BatchReader* reader() const override { return &reader_; }

  void SetShare(const DataShare& share) override {
    reader_.SetShare(share);
    ahead_ = nullptr;
  }

  void Load(int64_t iteration, int64_t next) override {
    const Batch* const ahead = std::exchange(ahead_, nullptr);
    if (ahead != nullptr && iteration == next_) {
      batch_ = ahead;
      reader_.ReadAhead(next);
    } else {
      batch_ = &reader_.Read(iteration, next);
      reader_.memory().Send(batch_->slot);
    }
    reader_.memory().Use(batch_->slot);
    next_ = next;
  }

  void SendAhead() override {
    if (place_.engine_device == nullptr || ahead_ != nullptr) return;
    ahead_ = reader_.TakeIfRead(next_);
    if (ahead_ != nullptr) reader_.memory().Send(ahead_->slot);
  }

  Tensors Forward(const Pass&, const Tensors&, const Tensors&) override {
    Tensors tops;
    for (size_t i = 0; i < reader_.shapes().size(); ++i) {
      tops.push_back(
          ViewInOrder(reader_.memory().values(batch_->slot, i), reader_.shapes()[i], place_));
    }
    return tops;
  }

 private:
  BatchReader reader_;
  BatchPlace place_;
  const Batch* batch_ = nullptr;
  const Batch* ahead_ = nullptr;  // of next_, on its way
  int64_t next_ = -1;
};

// Memory for the tops of a layer that reads no file: it writes them in each Load, or once.
class MemoryLayer : public DataLayer {
 public:
  MemoryLayer(const LayerDescription& layer, const BatchPlace& place)
      : layer_(layer), place_(place) {
    for (const BlobDescription& top : layer.tops) {
      memory_.push_back(std::make_unique<BatchMemory>(
          place.engine_device, std::vector<size_t>{static_cast<size_t>(Count(top.shape))}));
    }
    slots_.resize(memory_.size());
    constants_.resize(memory_.size());
  }

  Tensors Forward(const Pass&, const Tensors&, const Tensors&) override {
    Tensors tops;
    for (size_t i = 0; i < memory_.size(); ++i) {
      tops.push_back(constants_[i].defined() ? constants_[i] : Top(i));
    }
    return tops;
  }

 protected:
  const LayerDescription& layer() const { return layer_; }

  // Memory to write the top to, of another batch than what is computed with.
  std::span<float> Other(size_t top) {
    slots_[top] = (slots_[top] + 1) % BatchMemory::kSlots;
    memory_[top]->AwaitHost(slots_[top]);
    return memory_[top]->host(slots_[top], 0);
  }
  // It is written.
  void Use(size_t top) {
    memory_[top]->Send(slots_[top]);
    memory_[top]->Use(slots_[top]);
  }
  // And never will be again: what is computed from it once stays where it is.
  void Keep(size_t top) {
    Use(top);
    constants_[top] = Top(top);
  }

 private:
  at::Tensor Top(size_t top) const {
    return ViewInOrder(memory_[top]->values(slots_[top], 0), layer_.tops[top].shape, place_);
  }

  LayerDescription layer_;
  BatchPlace place_;
  std::vector<std::unique_ptr<BatchMemory>> memory_;  // by top
  std::vector<int> slots_;
  Tensors constants_;  // undefined where a top is not
};

class FedLayer : public MemoryLayer {
 public:
  FedLayer(const LayerDescription& layer, DataFeed feed, const BatchPlace& place)
      : MemoryLayer(layer, place), feed_(std::move(feed)) {
    if (feed_) return;
    throw ConfigError(layer.where,
                      "layer \"" + layer.name() + "\" (" + layer.type() +
                          "): reads nothing by itself, a program has to feed it; to train from "
                          "files use Data, ImageData, HDF5Data or DummyData");
  }

  void Load(int64_t iteration, int64_t) override {
    std::vector<std::span<float>> tops;
    for (size_t top = 0; top < layer().tops.size(); ++top) tops.push_back(Other(top));
    feed_(layer(), iteration, tops);
    for (size_t top = 0; top < tops.size(); ++top) Use(top);
  }

 private:
  DataFeed feed_;
};

// Constants are filled once, others anew in each iteration, as in Caffe. Each sample has a seed of
// its own, and fan and sparsity are those of all workers' samples, so that workers together draw
// what one with all their samples draws.
class DummyLayer : public MemoryLayer {
 public:
  DummyLayer(const LayerDescription& layer, const BatchReaderOptions& options,
             const BatchPlace& place)
      : MemoryLayer(layer, place),
        share_{.place = options.rank, .tenures = {{0, options.workers}}},
        seed_(DeriveSeed(options.seed, layer.name())) {
    for (size_t top = 0; top < layer.tops.size(); ++top) {
      const std::string error = FillerError(FillerOf(top), ShapeOfAllWorkers(top));
      if (!error.empty())
        throw ConfigError(layer.where, "layer \"" + layer.name() + "\": " + error);
      if (!IsConstant(top)) continue;
      FillTop(top, 0);
      Keep(top);
    }
  }

  void SetShare(const DataShare& share) override { share_ = share; }

  void Load(int64_t iteration, int64_t) override {
    for (size_t top = 0; top < layer().tops.size(); ++top) {
      if (IsConstant(top)) continue;
      FillTop(top, iteration);
      Use(top);
    }
  }

 private:
  caffe::FillerParameter FillerOf(size_t top) const {
    const caffe::DummyDataParameter& parameter = layer().parameter.dummy_data_param();
    if (parameter.data_filler_size() == 0) return {};  // zeros
    return parameter.data_filler(parameter.data_filler_size() == 1 ? 0 : static_cast<int>(top));
  }

  bool IsConstant(size_t top) const { return FillerOf(top).type() == "constant"; }

  int64_t Samples(size_t top) const {
    const Shape& shape = layer().tops[top].shape;
    return shape.empty() ? 1 : shape[0];
  }

  Shape ShapeOfAllWorkers(size_t top) const {
    Shape shape = layer().tops[top].shape;
    if (!shape.empty()) shape[0] *= share_.tenures[0].workers;
    return shape;
  }

  void FillTop(size_t top, int64_t iteration) {
    const std::span<float> values = Other(top);
    const int64_t samples = Samples(top);
    const size_t values_a_sample = values.size() / static_cast<size_t>(samples);
    const int64_t first = FirstPosition(share_, share_.place, iteration, samples);
    for (int64_t i = 0; i < samples; ++i) {
      Fill(FillerOf(top), ShapeOfAllWorkers(top),
           DeriveSeed(DeriveSeed(seed_, static_cast<uint64_t>(first + i)), top),
           values.subspan(static_cast<size_t>(i) * values_a_sample, values_a_sample));
    }
  }

  DataShare share_;
  uint64_t seed_;
};

}  // namespace

at::Tensor ToBatchTensor(std::span<const float> values, const Shape& shape,
                         const BatchPlace& place) {
  if (place.device.is_cpu()) return ViewInOrder(values, shape, place);
  const at::Tensor on_host = at::from_blob(const_cast<float*>(values.data()), shape);
  return InOrder(CopyInStream(on_host, place.device), place);
}

Tensors DataLayer::Backward(const Tensors&, const ParameterGradients&) { return {}; }

bool IsDataLayer(const LayerDescription& layer) {
  const std::string& type = layer.type();
  // A Python layer that learns computes when its parameters are there.
  if (type == "Python") return layer.bottoms.empty() && layer.parameters.empty();
  return ReadsSamples(type) || type == "DummyData" || type == "Input" || type == "MemoryData";
}

std::unique_ptr<DataLayer> MakeDataLayer(const LayerDescription& layer,
                                         const BatchReaderOptions& options,
                                         const BatchPlace& place) {
  if (ReadsSamples(layer.type())) return std::make_unique<FileLayer>(layer, options, place);
  if (layer.type() == "DummyData") return std::make_unique<DummyLayer>(layer, options, place);
  if (layer.type() == "Python") return MakePythonData(layer, options, place);
  return std::make_unique<FedLayer>(layer, options.feed, place);
}

}  // namespace poseidon
