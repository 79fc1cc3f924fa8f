#include "caffe_adapter/net/net.h"

#include <limits>
#include <map>
#include <set>

#include "caffe_adapter/net/filler.h"
#include "caffe_adapter/net/filtered_blobs.h"
#include "caffe_adapter/net/layer_types.h"
#include "caffe_adapter/net/parameter_sharing.h"
#include "caffe_adapter/net/upgrade.h"
#include "proto/caffe_forks.h"

namespace poseidon {
namespace {

DescribeOptions WithLocate(DescribeOptions options, const caffe::NetParameter& net) {
  if (!options.locate) {
    const std::string name = net.name().empty() ? "the net" : "net \"" + net.name() + "\"";
    options.locate = [name](const std::string&) { return Location{name, 0, 0}; };
  }
  return options;
}

caffe::NetState StateOf(const caffe::NetParameter& net, caffe::Phase phase,
                        const DescribeOptions& options) {
  caffe::NetState state = net.state();
  state.MergeFrom(options.state);
  state.set_phase(phase);
  return state;
}

bool HasStage(const caffe::NetState& state, const std::string& stage) {
  for (const std::string& each : state.stage()) {
    if (each == stage) return true;
  }
  return false;
}

bool Matches(const caffe::NetState& state, const caffe::NetStateRule& rule) {
  if (rule.has_phase() && rule.phase() != state.phase()) return false;
  if (rule.has_min_level() && state.level() < rule.min_level()) return false;
  if (rule.has_max_level() && state.level() > rule.max_level()) return false;
  for (const std::string& stage : rule.stage()) {
    if (!HasStage(state, stage)) return false;
  }
  for (const std::string& stage : rule.not_stage()) {
    if (HasStage(state, stage)) return false;
  }
  return true;
}

bool AnyMatches(const caffe::NetState& state,
                const google::protobuf::RepeatedPtrField<caffe::NetStateRule>& rules) {
  for (const caffe::NetStateRule& rule : rules) {
    if (Matches(state, rule)) return true;
  }
  return false;
}

std::string RangeText(const LayerType::Range& range) {
  if (range.min == range.max) return std::to_string(range.min);
  if (range.max == std::numeric_limits<int>::max()) {
    return std::to_string(range.min) + " or more";
  }
  return std::to_string(range.min) + " to " + std::to_string(range.max);
}

void CheckNumber(const LayerInput& input, const std::string& what, int number,
                 const LayerType::Range& range) {
  if (number < range.min || number > range.max) {
    input.Fail("",
               "has " + std::to_string(number) + " " + what + "s; expected " + RangeText(range));
  }
}

// Caffe counts a blob's values in an int. `note` is added to what is said of too many.
void CheckShape(const LayerInput& input, const std::string& what, const Shape& shape,
                const std::string& note = "") {
  constexpr int64_t kMaxCount = std::numeric_limits<int32_t>::max();
  int64_t count = 1;
  for (const int64_t extent : shape) {
    if (extent < 1 || extent > kMaxCount / count) {
      input.Fail("", what + " would be " + ToString(shape) +
                         "; expected extents of at least 1 and at most 2^31 - 1 values" +
                         (extent < 1 ? "" : note));
    }
    count *= extent;
  }
}

// Builds a description layer by layer.
class Describer {
 public:
  Describer(const caffe::NetParameter& written, const DescribeOptions& options, NetDescription& net)
      : written_(written), options_(options), net_(net), sharing_(net) {}

  void Add(caffe::LayerParameter layer, const std::string& path) {
    const std::vector<Shape> bottoms = BottomShapes(layer, path);
    const LayerInput input{layer, bottoms, options_, written_, path};
    const LayerType& type = CheckType(input);
    if (type.loss && layer.top_size() == 0) layer.add_top(NameOfAddedTop(layer));
    CheckNumber(input, "bottom", layer.bottom_size(), type.bottoms);
    CheckNumber(input, "top", layer.top_size(), type.tops);
    CheckPropagateDown(input);
    LayerShapes shapes = type.infer(input);
    CheckName(input, !shapes.parameters.empty());
    CheckParameters(input, shapes.parameters);
    TakeWrittenValues(input, shapes.parameters);
    sharing_.Add(input, shapes.parameters);
    CheckTops(input, type, shapes.tops);
    AddFilteredTops(input, shapes.tops, filtered_);

    LayerDescription description;
    description.parameter = layer;
    description.parameter.clear_blobs();  // their values are the parameters'
    if (!layer.has_phase()) description.parameter.set_phase(net_.phase);
    description.where = options_.locate(path);
    description.shape_source = shapes.source;
    for (int i = 0; i < layer.bottom_size(); ++i) {
      description.bottoms.push_back({layer.bottom(i), bottoms[i]});
    }
    for (int i = 0; i < layer.top_size(); ++i) {
      description.tops.push_back({layer.top(i), shapes.tops[i]});
      shapes_[layer.top(i)] = shapes.tops[i];
    }
    description.loss_weights = LossWeights(input, type);
    description.loss_by_default = type.loss && layer.loss_weight_size() == 0;
    description.parameters = std::move(shapes.parameters);
    SetBatch(description);
    net_.layers.push_back(std::move(description));
  }

 private:
  // Caffe gives a loss a top without a name, which can't be another blob's either, nor that of one
  // that a later layer makes.
  std::string NameOfAddedTop(const caffe::LayerParameter& layer) const {
    std::string name = layer.name();
    while (shapes_.contains(name) || IsTop(name)) name += " (automatic)";
    return name;
  }

  bool IsTop(const std::string& name) const {
    return std::any_of(written_.layer().begin(), written_.layer().end(), [&](const auto& layer) {
      return std::find(layer.top().begin(), layer.top().end(), name) != layer.top().end();
    });
  }

  std::vector<Shape> BottomShapes(const caffe::LayerParameter& layer, const std::string& path) {
    std::vector<Shape> bottoms;
    for (int i = 0; i < layer.bottom_size(); ++i) {
      const auto found = shapes_.find(layer.bottom(i));
      if (found == shapes_.end()) {
        LayerInput{layer, bottoms, options_, written_, path}.Fail(
            "bottom." + std::to_string(i),
            "bottom \"" + layer.bottom(i) + "\" is no top of a layer before it in this phase");
      }
      bottoms.push_back(found->second);
    }
    return bottoms;
  }

  const LayerType& CheckType(const LayerInput& input) {
    const LayerType* type = FindLayerType(input.layer.type());
    if (!type) {
      const std::string fork = NoteOnForkLayer(input.layer.type());
      input.Fail(input.layer.has_type() ? "type" : "",
                 "unknown layer type; " + (fork.empty() ? "known are " + LayerTypeNames() : fork));
    }
    return *type;
  }

  void CheckName(const LayerInput& input, bool has_parameters) {
    if (input.layer.name().empty()) input.Fail("", "the layer has no name");
    const auto [found, is_new] = has_parameters_.emplace(input.layer.name(), has_parameters);
    // Values are kept and found by their layer's name.
    if (!is_new && (has_parameters || found->second)) {
      input.Fail("name", "another layer of this phase has the same name");
    }
  }

  static void CheckParameters(const LayerInput& input,
                              const std::vector<ParameterDescription>& parameters) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      const std::string what = "parameter blob " + std::to_string(i);
      CheckShape(input, what, parameters[i].shape);
      const std::string error = FillerError(parameters[i].filler, parameters[i].shape);
      if (!error.empty()) input.Fail("", what + ": " + error);
    }
  }

  // Where a top has the batch that was given: whoever looks into the net finds another.
  std::string NoteOnBatch(const Shape& top) const {
    if (!options_.batch_size || top.empty() || top[0] != *options_.batch_size) return "";
    return "; the batch is that of training.batch_per_worker (divided by "
           "cluster.devices_per_worker) or --batch, not the net's";
  }

  void CheckTops(const LayerInput& input, const LayerType& type, const std::vector<Shape>& tops) {
    std::set<std::string> own;
    for (int i = 0; i < input.layer.top_size(); ++i) {
      const std::string& top = input.layer.top(i);
      const std::string field = "top." + std::to_string(i);
      CheckShape(input, "top \"" + top + "\"", tops[i], NoteOnBatch(tops[i]));
      const bool in_place = i < input.layer.bottom_size() && input.layer.bottom(i) == top;
      if (in_place && !type.in_place) input.Fail(field, "this layer type can't work in place");
      if (!own.insert(top).second || (!in_place && shapes_.contains(top))) {
        input.Fail(field, "top \"" + top + "\" is made by another layer, too");
      }
    }
  }

  // As Caffe; what they say is for who computes the net.
  static void CheckPropagateDown(const LayerInput& input) {
    const int given = input.layer.propagate_down_size();
    if (given != 0 && given != input.layer.bottom_size()) {
      input.Fail("propagate_down.0", "has " + std::to_string(given) +
                                         " propagate_down entries; expected one for each of " +
                                         std::to_string(input.layer.bottom_size()) + " bottoms");
    }
  }

  static std::vector<float> LossWeights(const LayerInput& input, const LayerType& type) {
    const int given = input.layer.loss_weight_size();
    if (given != 0 && given != input.layer.top_size()) {
      input.Fail("loss_weight.0", "has " + std::to_string(given) +
                                      " loss_weight entries; expected one for each of " +
                                      std::to_string(input.layer.top_size()) + " tops");
    }
    std::vector<float> weights(input.layer.loss_weight().begin(), input.layer.loss_weight().end());
    weights.resize(input.layer.top_size(), 0);
    if (given == 0 && type.loss) weights[0] = 1;
    return weights;
  }

  void SetBatch(const LayerDescription& layer) {
    const bool reads = layer.bottoms.empty() && layer.type() != "Parameter";
    if (net_.batch == 0 && reads && !layer.tops.empty() && !layer.tops[0].shape.empty()) {
      net_.batch = layer.tops[0].shape[0];
    }
  }

  const caffe::NetParameter& written_;
  const DescribeOptions& options_;
  NetDescription& net_;
  std::map<std::string, Shape> shapes_;         // of the tops so far
  FilteredBlobs filtered_;                      // of the tops so far
  std::map<std::string, bool> has_parameters_;  // by layer name
  ParameterSharing sharing_;
};

}  // namespace

int64_t LayerDescription::owned_floats() const {
  int64_t floats = 0;
  for (const ParameterDescription& blob : parameters) {
    if (!blob.owner) floats += Count(blob.shape);
  }
  return floats;
}

std::optional<int> FindLayer(const NetDescription& net, const std::string& name) {
  for (size_t i = 0; i < net.layers.size(); ++i) {
    if (net.layers[i].name() == name) return static_cast<int>(i);
  }
  return std::nullopt;
}

std::vector<int> LayersInPhase(const caffe::NetParameter& net, caffe::Phase phase,
                               const DescribeOptions& given) {
  const DescribeOptions options = WithLocate(given, net);
  const caffe::NetState state = StateOf(net, phase, options);
  std::vector<int> indices;
  for (int i = 0; i < net.layer_size(); ++i) {
    const caffe::LayerParameter& layer = net.layer(i);
    if (layer.include_size() > 0 && layer.exclude_size() > 0) {
      throw ConfigError(
          options.locate("layer." + std::to_string(i)),
          "layer \"" + layer.name() + "\": give include rules or exclude rules, not both");
    }
    const bool included = layer.include_size() > 0 ? AnyMatches(state, layer.include())
                                                   : !AnyMatches(state, layer.exclude());
    if (included) indices.push_back(i);
  }
  return indices;
}

NetDescription DescribeNet(const caffe::NetParameter& net, caffe::Phase phase,
                           const DescribeOptions& given) {
  DescribeOptions options = WithLocate(given, net);
  if (NeedsUpgrade(net)) {
    caffe::NetParameter upgraded = net;
    options.locate = UpgradeNet(upgraded, options.locate);
    return DescribeNet(upgraded, phase, options);
  }
  options.state.set_phase(phase);
  NetDescription description;
  description.name = net.name();
  description.phase = phase;
  Describer describer(net, options, description);
  for (const int i : LayersInPhase(net, phase, options)) {
    describer.Add(net.layer(i), "layer." + std::to_string(i));
  }
  if (description.layers.empty()) {
    throw ConfigError(options.locate(""),
                      "no layer is in phase " + caffe::Phase_Name(phase) + " and its stages");
  }
  return description;
}

}  // namespace poseidon
