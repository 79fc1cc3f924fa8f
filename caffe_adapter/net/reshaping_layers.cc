// Shapes of layers that cut, join and reshape blobs without computing.
#include <algorithm>
#include <optional>

#include "caffe_adapter/net/layer_types.h"

namespace poseidon {
namespace {

// `axis`, or its older form that counts from the front only.
template <typename Parameter>
int AxisOrDim(const LayerInput& input, const Parameter& p, const std::string& parameter,
              const std::string& old_name, std::optional<uint32_t> old_value) {
  if (!old_value) return input.Axis(p.axis(), parameter + ".axis");
  const std::string field = parameter + "." + old_name;
  if (p.has_axis()) input.Fail(field, "give axis or " + old_name + ", not both");
  if (*old_value >= input.bottoms[0].size()) {
    input.Fail(field, old_name + " is " + std::to_string(*old_value) + ", but " + input.Bottom(0) +
                          ", has axes 0 to " + std::to_string(input.bottoms[0].size()) + " - 1");
  }
  return static_cast<int>(*old_value);
}

// The extents of a Slice layer's tops along its axis.
std::vector<int64_t> SliceExtents(const LayerInput& input, int64_t extent) {
  const caffe::SliceParameter& p = input.layer.slice_param();
  const int tops = input.layer.top_size();
  if (p.slice_point_size() == 0) {
    if (extent % tops != 0) {
      input.Fail("slice_param", "the " + std::to_string(extent) +
                                    " places of the axis don't divide into " +
                                    std::to_string(tops) + " tops; give slice_point");
    }
    return std::vector<int64_t>(tops, extent / tops);
  }
  if (p.slice_point_size() != tops - 1) {
    input.Fail("slice_param.slice_point", "there are " + std::to_string(p.slice_point_size()) +
                                              " of slice_point; expected one less than the " +
                                              std::to_string(tops) + " tops");
  }
  std::vector<int64_t> extents;
  int64_t begin = 0;
  for (int i = 0; i < tops; ++i) {
    const int64_t end = i < tops - 1 ? p.slice_point(i) : extent;
    if (end <= begin || end > extent) {
      input.Fail("slice_param.slice_point", "slice_point must rise from 1 to less than " +
                                                std::to_string(extent) + ", the axis's extent");
    }
    extents.push_back(end - begin);
    begin = end;
  }
  return extents;
}

// The axes that a Reshape layer replaces: from begin to before end.
struct Replaced {
  int begin;
  int end;
};

Replaced ReplacedAxes(const LayerInput& input) {
  const caffe::ReshapeParameter& p = input.layer.reshape_param();
  const int axes = static_cast<int>(input.bottoms[0].size());
  // -1 is behind the last axis.
  const int begin = p.axis() >= 0 ? p.axis() : axes + p.axis() + 1;
  if (begin < 0 || begin > axes) {
    input.Fail("reshape_param.axis", "axis is " + std::to_string(p.axis()) + ", but " +
                                         input.Bottom(0) + ", has " + std::to_string(axes) +
                                         " axes");
  }
  if (p.num_axes() < -1 || p.num_axes() > axes - begin) {
    input.Fail("reshape_param.num_axes", std::to_string(p.num_axes()) + " axes from axis " +
                                             std::to_string(begin) + " are not in " +
                                             input.Bottom(0));
  }
  return {begin, p.num_axes() == -1 ? axes : begin + p.num_axes()};
}

// What a Reshape layer puts in their place, -1 where the extent follows from the others.
Shape NewExtents(const LayerInput& input, const Replaced& replaced) {
  Shape extents;
  int inferred = 0;
  const caffe::BlobShape& shape = input.layer.reshape_param().shape();
  for (int i = 0; i < shape.dim_size(); ++i) {
    const size_t from = static_cast<size_t>(replaced.begin) + i;
    const std::string field = "reshape_param.shape.dim";
    if (shape.dim(i) < -1) input.Fail(field, "dim is " + std::to_string(shape.dim(i)));
    if (shape.dim(i) == 0 && from >= input.bottoms[0].size()) {
      input.Fail(field, "dim 0 keeps the extent of axis " + std::to_string(from) + ", but " +
                            input.Bottom(0) + ", has none");
    }
    inferred += shape.dim(i) == -1 ? 1 : 0;
    if (inferred > 1) input.Fail(field, "only one dim can be -1, what is left");
    extents.push_back(shape.dim(i) == 0 ? input.bottoms[0][from] : shape.dim(i));
  }
  return extents;
}

}  // namespace

LayerShapes InferConcat(const LayerInput& input) {
  const caffe::ConcatParameter& p = input.layer.concat_param();
  const int axis = AxisOrDim(input, p, "concat_param", "concat_dim",
                             p.has_concat_dim() ? std::optional(p.concat_dim()) : std::nullopt);
  Shape top = input.bottoms[0];
  for (size_t i = 1; i < input.bottoms.size(); ++i) {
    Shape expected = top;
    if (input.bottoms[i].size() == top.size()) expected[axis] = input.bottoms[i][axis];
    if (input.bottoms[i] != expected) {
      input.Fail("bottom." + std::to_string(i),
                 "bottom \"" + input.layer.bottom(static_cast<int>(i)) + "\" is " +
                     ToString(input.bottoms[i]) + "; expected the shape of \"" +
                     input.layer.bottom(0) + "\", " + ToString(input.bottoms[0]) +
                     ", but for axis " + std::to_string(axis));
    }
    top[axis] += input.bottoms[i][axis];
  }
  return {{top}, {}};
}

LayerShapes InferSlice(const LayerInput& input) {
  const caffe::SliceParameter& p = input.layer.slice_param();
  const int axis = AxisOrDim(input, p, "slice_param", "slice_dim",
                             p.has_slice_dim() ? std::optional(p.slice_dim()) : std::nullopt);
  LayerShapes shapes;
  for (const int64_t extent : SliceExtents(input, input.bottoms[0][axis])) {
    shapes.tops.push_back(input.bottoms[0]);
    shapes.tops.back()[axis] = extent;
  }
  return shapes;
}

LayerShapes InferSplit(const LayerInput& input) {
  return {std::vector<Shape>(input.layer.top_size(), input.bottoms[0]), {}};
}

LayerShapes InferFlatten(const LayerInput& input) {
  const caffe::FlattenParameter& p = input.layer.flatten_param();
  const int first = input.Axis(p.axis(), "flatten_param.axis");
  const int last = input.Axis(p.end_axis(), "flatten_param.end_axis");
  // One before is an axis of extent 1 put in.
  if (last + 1 < first) input.Fail("flatten_param.end_axis", "end_axis comes before axis");
  const Shape& bottom = input.bottoms[0];
  Shape top(bottom.begin(), bottom.begin() + first);
  top.push_back(Count(bottom, first, last + 1));
  top.insert(top.end(), bottom.begin() + last + 1, bottom.end());
  return {{top}, {}};
}

LayerShapes InferReshape(const LayerInput& input) {
  const Shape& bottom = input.bottoms[0];
  const Replaced replaced = ReplacedAxes(input);
  Shape top(bottom.begin(), bottom.begin() + replaced.begin);
  const Shape extents = NewExtents(input, replaced);
  top.insert(top.end(), extents.begin(), extents.end());
  top.insert(top.end(), bottom.begin() + replaced.end, bottom.end());
  // What the extents that are known leave of the count.
  int64_t left = Count(bottom);
  bool fits = true;
  for (const int64_t extent : top) {
    if (extent == -1) continue;
    fits = fits && left % extent == 0;
    left /= extent;
  }
  const auto inferred = std::find(top.begin(), top.end(), -1);
  fits = fits && (left == 1 || (inferred != top.end() && left > 0));
  if (!fits) {
    input.Fail("reshape_param.shape", "the " + std::to_string(Count(bottom)) + " values of " +
                                          input.Bottom(0) + ", don't make up " + ToString(top));
  }
  if (inferred != top.end()) *inferred = left;
  return {{top}, {}};
}

// Bottom 0 cut down to the extents of bottom 1 from an axis on.
LayerShapes InferCrop(const LayerInput& input) {
  const caffe::CropParameter& p = input.layer.crop_param();
  const int axis = input.Axis(p.axis(), "crop_param.axis");
  Shape top = input.bottoms[0];
  const int axes = static_cast<int>(top.size());
  if (p.offset_size() > 1 && p.offset_size() != axes - axis) {
    input.Fail("crop_param.offset", "offset has " + std::to_string(p.offset_size()) +
                                        " values; expected 1 or one for each of the " +
                                        std::to_string(axes - axis) + " axes that are cropped");
  }
  if (static_cast<int>(input.bottoms[1].size()) < axes) {
    input.Fail("bottom.1", input.Bottom(1) + ", has fewer axes than " + input.Bottom(0));
  }
  for (int i = axis; i < axes; ++i) {
    const int64_t offset = p.offset_size() == 0 ? 0 : p.offset(p.offset_size() == 1 ? 0 : i - axis);
    top[i] = input.bottoms[1][i];
    if (offset + top[i] > input.bottoms[0][i]) {
      input.Fail("crop_param", std::to_string(top[i]) + " places from offset " +
                                   std::to_string(offset) + " on are not in axis " +
                                   std::to_string(i) + " of " + input.Bottom(0));
    }
  }
  return {{top}, {}};
}

LayerShapes InferTile(const LayerInput& input) {
  const caffe::TileParameter& p = input.layer.tile_param();
  const int axis = input.Axis(p.axis(), "tile_param.axis");
  if (p.tiles() < 1) input.Fail("tile_param.tiles", "tiles must be at least 1");
  Shape top = input.bottoms[0];
  top[axis] *= p.tiles();
  return {{top}, {}};
}

// The samples of bottom 0 that bottom 1 names.
LayerShapes InferBatchReindex(const LayerInput& input) {
  if (input.bottoms[1].size() != 1) {
    input.Fail("bottom.1", input.Bottom(1) + ", has indices along one axis only");
  }
  if (input.bottoms[0].empty()) input.Fail("bottom.0", input.Bottom(0) + ", has no samples");
  Shape top = input.bottoms[0];
  top[0] = input.bottoms[1][0];
  return {{top}, {}};
}

// The samples whose value of the last bottom, the selector, is not 0. The tops have the extents
// that they have when all samples pass.
LayerShapes InferFilter(const LayerInput& input) {
  const int tops = input.layer.bottom_size() - 1;
  if (input.layer.top_size() != tops) {
    input.Fail("", "has " + std::to_string(input.layer.top_size()) + " tops; expected " +
                       std::to_string(tops) + ", one for each bottom but the selector, the last");
  }
  const Shape& selector = input.bottoms[tops];
  const std::string field = "bottom." + std::to_string(tops);
  if (selector.empty() || Count(selector) != selector[0]) {
    input.Fail(field, input.Bottom(tops) + ", should have one value for each sample");
  }
  for (int i = 0; i < tops; ++i) {
    if (!input.bottoms[i].empty() && input.bottoms[i][0] == selector[0]) continue;
    input.Fail("bottom." + std::to_string(i),
               input.Bottom(i) + ", should have as many samples as " + input.Bottom(tops));
  }
  return {{input.bottoms.begin(), input.bottoms.end() - 1}, {}};
}

LayerShapes InferSilence(const LayerInput&) { return {}; }

}  // namespace poseidon
