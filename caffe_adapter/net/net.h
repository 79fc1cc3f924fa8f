// A Caffe net as one phase sees it: its layers in order with the shapes of their blobs, inferred
// without any compute engine.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "caffe_adapter/net/shape.h"
#include "core/error.h"
#include "proto/caffe.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

struct BlobDescription {
  std::string name;
  Shape shape;
};

// The first layer, in forward order, with a parameter of some name.
struct ParameterOwner {
  int layer;  // of NetDescription::layers
  int blob;   // of its parameters
};

// A blob that a layer learns or keeps: weights, bias, statistics.
struct ParameterDescription {
  Shape shape;
  caffe::FillerParameter filler;  // what its first values come from
  float lr_mult = 1;              // of shared parameters the same at each of them
  float decay_mult = 1;
  // Set where the blob is shared by name (ParamSpec.name) with a layer before: it is that layer's,
  // with as many values and, unless share_mode is PERMISSIVE, of its shape.
  std::optional<ParameterOwner> owner = std::nullopt;
  bool shared = false;  // is another's or another is this one
  // What it comes from instead of the filler, if not empty: the net's `blobs` of the layer, or what
  // a Python layer gives.
  std::vector<float> first_values = {};
};

// What told the shape of the samples that a layer reads.
enum class ShapeSource {
  kGiven,       // DescribeOptions::record_shape
  kData,        // the first record of what the layer reads
  kInputLayer,  // an Input layer with the same top, which the phase leaves out
  kImageSize,   // ImageData's new_height and new_width
  kCropSize,    // transform_param.crop_size, with the channels that the layer's settings suggest
};

// A layer of the phase described. In place where a top has the name of the bottom at its index.
struct LayerDescription {
  caffe::LayerParameter parameter;  // as written, with `phase` set to the net's, without `blobs`
  std::vector<BlobDescription> bottoms;
  std::vector<BlobDescription> tops;
  std::vector<float> loss_weights;  // one a top; 0 where the top is no loss
  // The first weight is that of a loss layer which is written without one. The top's gradient has
  // it only where no layer that leads to a loss reads the top, as in Caffe. The reported loss has
  // the weight that is meant; Caffe's own log has what its backward pass leaves there. Where layers
  // read the top, but only such as lead to no loss (Silence), Caffe does not train the loss; here
  // it is trained.
  bool loss_by_default = false;
  std::vector<ParameterDescription> parameters;  // Caffe's `blobs`, in its order
  Location where;                                // of the layer in its file, for later errors
  std::optional<ShapeSource> shape_source = std::nullopt;  // of a layer that reads samples
  // SoftmaxWithLoss: the share of the label that all classes get; the job's wish, not the net's.
  float label_smoothing = 0;

  // Floats of the parameters that are its own, not another layer's.
  int64_t owned_floats() const;
  const std::string& name() const { return parameter.name(); }
  const std::string& type() const { return parameter.type(); }
};

struct NetDescription {
  std::string name;
  caffe::Phase phase = caffe::TRAIN;
  std::vector<LayerDescription> layers;  // in forward order
  int64_t batch = 0;  // samples an iteration: the first extent of the first data layer's first top
};

// The index of the layer called `name`, if the net has it.
std::optional<int> FindLayer(const NetDescription& net, const std::string& name);

// Where the field at a dotted path of the net ("layer.3.type") stands in its file.
using Locate = std::function<Location(const std::string& path)>;

struct DescribeOptions {
  // Level and stages that include and exclude rules are matched against, merged over the net's own.
  caffe::NetState state;
  // For errors. By default they name the net only.
  Locate locate;
  // Takes the place of every data layer's batch size, and of the first extent of Input layers.
  std::optional<int64_t> batch_size;
  // Channels, height and width of a record before cropping. Given, no data are opened; by default
  // the first record of what a layer reads tells.
  std::optional<Shape> record_shape;
  // A layer whose data are not there takes their shape from what the net says of it, in the order
  // of ShapeSource: for who needs no more than shapes. Off: training needs the data.
  bool data_optional = false;
};

// Describes the layers of `net` that belong to `phase`. Reads the first record of what Data,
// ImageData and HDF5Data layers name. Throws ConfigError that names the layer and its place for an
// unknown layer type, a bottom that no layer below has as top, a top that two layers make, a shape
// that does not fit, a parameter out of range, parameters shared by name that differ in shape,
// lr_mult or decay_mult; DataError for data that can't be read, or that are not there while nothing
// else tells their shape.
//
// Python layers are asked for their shapes, so their code runs: setup and reshape, as worker 0
// of 1.
//
// A net of an older format is upgraded (caffe_adapter/net/upgrade.h). `force_backward` has no
// effect: it asks for gradients that training does not need.
NetDescription DescribeNet(const caffe::NetParameter& net, caffe::Phase phase,
                           const DescribeOptions& options = {});

// The indices in net.layer() of the layers that include and exclude rules leave in the phase; of
// the options, only `state` and `locate` matter. Throws ConfigError for a layer with rules of both
// kinds.
std::vector<int> LayersInPhase(const caffe::NetParameter& net, caffe::Phase phase,
                               const DescribeOptions& options = {});

// What a worker declares: layers that own parameters with an lr_mult other than 0, with what they
// own. All others never change, so nothing of theirs is synchronized; what they compute counts to
// the next declared layer below, or the first. `inner_product` is set for InnerProduct layers whose
// weight gradient is a product of two factors: axis 1, not transposed, nothing shared.
ModelSpec ToModelSpec(const NetDescription& net, const caffe::SolverParameter& solver);

// Floats that the net learns: those of the layers that ToModelSpec keeps.
int64_t ParameterCount(const ModelSpec& model);

}  // namespace poseidon
