// Layers that cut, join and reshape blobs without computing.
#include <ATen/ops/cat.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/zeros.h>

#include "worker/torch/layers/torch_labels.h"
#include "worker/torch/layers/torch_layer.h"

namespace poseidon {
namespace {

class Silence : public TorchLayer {
 public:
  Tensors Forward(const Pass&, const Tensors&, const Tensors&) override { return {}; }
  Tensors Backward(const Tensors&, const ParameterGradients&) override { return {}; }
};

class Reshape : public TorchLayer {
 public:
  explicit Reshape(const TorchLayerInput& input) : top_shape_(input.description.tops[0].shape) {}

  Tensors Forward(const Pass&, const Tensors& bottoms, const Tensors&) override {
    format_ = bottoms[0].suggest_memory_format();
    bottom_shape_ = bottoms[0].sizes().vec();
    return {bottoms[0].reshape(top_shape_)};
  }

  // In the format of the bottom, as the layer below is several times slower otherwise.
  Tensors Backward(const Tensors& top_gradients, const ParameterGradients&) override {
    return {top_gradients[0].reshape(bottom_shape_).contiguous(format_)};
  }

 private:
  Shape top_shape_;

  // Of the forward pass.
  Shape bottom_shape_;
  at::MemoryFormat format_ = at::MemoryFormat::Contiguous;
};

// The parts one after the other along an axis.
Tensors SplitAlong(const at::Tensor& whole, const std::vector<int64_t>& extents, int64_t axis) {
  return whole.split_with_sizes(extents, axis);
}

// The sum of those that are defined; undefined if none is.
at::Tensor SumOfDefined(const Tensors& addends) {
  at::Tensor sum;
  for (const at::Tensor& addend : addends) {
    if (addend.defined()) sum = sum.defined() ? sum.add(addend) : addend;
  }
  return sum;
}

}  // namespace

// The samples of bottom 0 that bottom 1 names.
std::unique_ptr<TorchLayer> MakeBatchReindex(const TorchLayerInput& input) {
  input.CheckNoGradient(1, "indices");
  const LabelRange range{.layer = input.description.name(),
                         .count = input.description.bottoms[0].shape[0],
                         .samples = input.description.tops[0].shape[0],
                         .ignore = {},
                         .value = "index",
                         .counted = "samples"};
  return MakeAutogradLayer(
      input, [range](const Pass& pass, const Tensors& bottoms, const Tensors&) -> Tensors {
        return {SelectIndices(bottoms[0], 0, ToIndices(range, bottoms[1], pass))};
      });
}

std::unique_ptr<TorchLayer> MakeConcat(const TorchLayerInput& input) {
  const caffe::ConcatParameter& p = input.description.parameter.concat_param();
  const int64_t axis = p.has_concat_dim() ? p.concat_dim() : input.Axis(p.axis());
  std::vector<int64_t> extents;
  for (const BlobDescription& bottom : input.description.bottoms) {
    extents.push_back(bottom.shape[axis]);
  }
  return MakeLayerWithGradient(
      input,
      [axis](const Pass&, const Tensors& bottoms) -> Computed {
        return {{at::cat(bottoms, axis)}, {}};
      },
      [axis, extents](const Tensors& top_gradients, const Tensors&) -> Tensors {
        return SplitAlong(top_gradients[0], extents, axis);
      });
}

// Bottom 0 cut down to the extents of bottom 1 from an axis on, at an offset.
std::unique_ptr<TorchLayer> MakeCrop(const TorchLayerInput& input) {
  const caffe::CropParameter& p = input.description.parameter.crop_param();
  const int first = input.Axis(p.axis());
  const Shape top = input.description.tops[0].shape;
  Shape offsets(top.size(), 0);
  for (size_t i = first; i < top.size() && p.offset_size() > 0; ++i) {
    offsets[i] = p.offset(p.offset_size() == 1 ? 0 : static_cast<int>(i) - first);
  }
  return MakeAutogradLayer(
      input, [=](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
        at::Tensor cropped = bottoms[0].alias();
        for (size_t i = first; i < top.size(); ++i) {
          cropped = cropped.narrow(static_cast<int64_t>(i), offsets[i], top[i]);
        }
        return {cropped};
      });
}

// The samples whose selector, the last bottom, is not 0.
std::unique_ptr<TorchLayer> MakeFilter(const TorchLayerInput& input) {
  input.CheckNoGradient(input.description.bottoms.size() - 1, "the selector");
  return MakeAutogradLayer(
      input, [](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
        const at::Tensor chosen = at::nonzero(bottoms.back().detach().flatten()).flatten();
        Tensors tops;
        for (size_t i = 0; i + 1 < bottoms.size(); ++i) {
          tops.push_back(at::index_select(bottoms[i], 0, chosen));
        }
        return tops;
      });
}

std::unique_ptr<TorchLayer> MakeReshape(const TorchLayerInput& input) {
  return std::make_unique<Reshape>(input);
}

std::unique_ptr<TorchLayer> MakeSilence(const TorchLayerInput&) {
  return std::make_unique<Silence>();
}

std::unique_ptr<TorchLayer> MakeSlice(const TorchLayerInput& input) {
  const caffe::SliceParameter& p = input.description.parameter.slice_param();
  const int64_t axis = p.has_slice_dim() ? p.slice_dim() : input.Axis(p.axis());
  std::vector<Shape> shapes;
  std::vector<int64_t> extents;
  for (const BlobDescription& top : input.description.tops) {
    shapes.push_back(top.shape);
    extents.push_back(top.shape[axis]);
  }
  return MakeLayerWithGradient(
      input,
      [axis, extents](const Pass&, const Tensors& bottoms) -> Computed {
        return {SplitAlong(bottoms[0], extents, axis), {bottoms[0]}};
      },
      [axis, shapes](const Tensors& top_gradients, const Tensors& kept) -> Tensors {
        Tensors parts;
        for (size_t i = 0; i < shapes.size(); ++i) {
          const at::Tensor& part = top_gradients[i];
          parts.push_back(part.defined() ? part : at::zeros(shapes[i], kept[0].options()));
        }
        return {at::cat(parts, axis)};
      });
}

// Each top is the bottom.
std::unique_ptr<TorchLayer> MakeSplit(const TorchLayerInput& input) {
  const size_t tops = input.description.tops.size();
  return MakeLayerWithGradient(
      input,
      [tops](const Pass&, const Tensors& bottoms) -> Computed {
        return {Tensors(tops, bottoms[0]), {}};
      },
      [](const Tensors& top_gradients, const Tensors&) -> Tensors {
        return {SumOfDefined(top_gradients)};
      });
}

std::unique_ptr<TorchLayer> MakeTile(const TorchLayerInput& input) {
  const caffe::TileParameter& p = input.description.parameter.tile_param();
  Shape repeats(input.description.bottoms[0].shape.size(), 1);
  repeats[input.Axis(p.axis())] = p.tiles();
  return MakeAutogradLayer(
      input, [repeats](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
        return {bottoms[0].repeat(repeats)};
      });
}

}  // namespace poseidon
