#include "worker/torch_data_layer.h"

#include <ATen/ops/from_blob.h>

#include <utility>

#include "caffe_adapter/filler.h"
#include "core/error.h"
#include "core/random.h"

namespace poseidon {
namespace {

// On CPUs, convolutions and pooling are up to several times as fast with the channels innermost,
// and a layer's tops take the memory format of its bottoms. So it is decided here for the whole
// net. One channel lies alike in both formats: only its stride tells.
at::Tensor ChannelsInnermost(float* data, const Shape& shape) {
  if (shape[1] > 1) return at::from_blob(data, shape).contiguous(at::MemoryFormat::ChannelsLast);
  const int64_t width = shape[3];
  const int64_t image = shape[2] * width;
  return at::from_blob(data, shape, {image, 1, width, 1});
}

// A view, of images in the other order. For at::from_blob, which takes no const memory; no layer
// writes to its bottoms.
at::Tensor ToTensor(const std::vector<float>& values, const Shape& shape) {
  float* data = const_cast<float*>(values.data());
  return shape.size() == 4 ? ChannelsInnermost(data, shape) : at::from_blob(data, shape);
}

class FileLayer : public DataLayer {
 public:
  FileLayer(const LayerDescription& layer, const BatchReaderOptions& options)
      : reader_(layer, options) {}

  const BatchReader* reader() const override { return &reader_; }
  void Load(int64_t iteration, int64_t next) override { batch_ = &reader_.Read(iteration, next); }

  Tensors Forward(const Pass&, const Tensors&, const Tensors&) override {
    Tensors tops;
    for (size_t i = 0; i < batch_->tops.size(); ++i) {
      tops.push_back(ToTensor(batch_->tops[i], reader_.shapes()[i]));
    }
    return tops;
  }

 private:
  BatchReader reader_;
  const Batch* batch_ = nullptr;
};

// Memory for the tops of a layer that reads no file.
class MemoryLayer : public DataLayer {
 public:
  explicit MemoryLayer(const LayerDescription& layer) : layer_(layer) {
    for (const BlobDescription& top : layer.tops) values_.emplace_back(Count(top.shape));
  }

  Tensors Forward(const Pass&, const Tensors&, const Tensors&) override {
    Tensors tops;
    for (size_t i = 0; i < values_.size(); ++i) {
      tops.push_back(ToTensor(values_[i], layer_.tops[i].shape));
    }
    return tops;
  }

 protected:
  const LayerDescription& layer() const { return layer_; }
  std::vector<std::vector<float>>& values() { return values_; }

 private:
  LayerDescription layer_;
  std::vector<std::vector<float>> values_;
};

class FedLayer : public MemoryLayer {
 public:
  FedLayer(const LayerDescription& layer, DataFeed feed)
      : MemoryLayer(layer), feed_(std::move(feed)) {
    if (feed_) return;
    throw ConfigError(layer.where,
                      "layer \"" + layer.name() + "\" (" + layer.type() +
                          "): reads nothing by itself, a program has to feed it; to train from "
                          "files use Data, ImageData, HDF5Data or DummyData");
  }

  void Load(int64_t iteration, int64_t) override {
    std::vector<std::span<float>> tops(values().begin(), values().end());
    feed_(layer(), iteration, tops);
  }

 private:
  DataFeed feed_;
};

// Constants are filled once, others anew in each iteration, as in Caffe. Each sample has a seed of
// its own, so that workers together draw what one with all their samples draws.
class DummyLayer : public MemoryLayer {
 public:
  DummyLayer(const LayerDescription& layer, const BatchReaderOptions& options)
      : MemoryLayer(layer),
        order_(1, options.workers, layer.tops[0].shape.empty() ? 1 : layer.tops[0].shape[0], false,
               0),
        rank_(options.rank),
        seed_(DeriveSeed(options.seed, layer.name())) {
    for (size_t top = 0; top < values().size(); ++top) {
      const std::string error = FillerError(FillerOf(top), SampleShape(top));
      if (!error.empty())
        throw ConfigError(layer.where, "layer \"" + layer.name() + "\": " + error);
      if (IsConstant(top)) FillTop(top, 0);
    }
  }

  void Load(int64_t iteration, int64_t) override {
    for (size_t top = 0; top < values().size(); ++top) {
      if (!IsConstant(top)) FillTop(top, iteration);
    }
  }

 private:
  caffe::FillerParameter FillerOf(size_t top) const {
    const caffe::DummyDataParameter& parameter = layer().parameter.dummy_data_param();
    if (parameter.data_filler_size() == 0) return {};  // zeros
    return parameter.data_filler(parameter.data_filler_size() == 1 ? 0 : static_cast<int>(top));
  }

  bool IsConstant(size_t top) const { return FillerOf(top).type() == "constant"; }

  Shape SampleShape(size_t top) const {
    Shape shape = layer().tops[top].shape;
    if (!shape.empty()) shape[0] = 1;
    return shape;
  }

  void FillTop(size_t top, int64_t iteration) {
    const Shape shape = SampleShape(top);
    const size_t values_a_sample = Count(shape);
    std::span<float> left(values()[top]);
    for (int64_t i = 0; !left.empty(); ++i) {
      const auto position = static_cast<uint64_t>(order_.Position(iteration, rank_, i));
      Fill(FillerOf(top), shape, DeriveSeed(DeriveSeed(seed_, position), top),
           left.first(values_a_sample));
      left = left.subspan(values_a_sample);
    }
  }

  DataOrder order_;
  int rank_;
  uint64_t seed_;
};

}  // namespace

Tensors DataLayer::Backward(const Tensors&, const ParameterGradients&) { return {}; }

bool IsDataLayer(const std::string& layer_type) {
  return ReadsSamples(layer_type) || layer_type == "DummyData" || layer_type == "Input" ||
         layer_type == "MemoryData";
}

std::unique_ptr<DataLayer> MakeDataLayer(const LayerDescription& layer,
                                         const BatchReaderOptions& options) {
  if (ReadsSamples(layer.type())) return std::make_unique<FileLayer>(layer, options);
  if (layer.type() == "DummyData") return std::make_unique<DummyLayer>(layer, options);
  return std::make_unique<FedLayer>(layer, options.feed);
}

}  // namespace poseidon
