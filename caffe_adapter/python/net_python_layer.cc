#include "caffe_adapter/python/net_python_layer.h"

#include <filesystem>

#include "caffe_adapter/net/layer_types.h"

namespace poseidon {
namespace {

// That of a net which is in no file is empty.
std::string DirectoryOf(const std::string& net_file) {
  namespace fs = std::filesystem;
  if (!fs::exists(net_file)) return "";
  return fs::absolute(net_file).parent_path().lexically_normal().string();
}

void CheckParameter(const LayerInput& input) {
  const caffe::PythonParameter& p = input.layer.python_param();
  if (p.module().empty()) {
    input.Fail("python_param.module",
               "module is missing: the name of a Python file, without .py, in the net file's "
               "directory or in one of PYTHONPATH");
  }
  if (p.layer().empty()) {
    input.Fail("python_param.layer",
               "layer is missing: the name of a class of module \"" + p.module() + "\"");
  }
  if (p.share_in_parallel()) {
    input.Fail("python_param.share_in_parallel",
               "workers are processes, which can't share a layer; leave share_in_parallel out, and "
               "let the layer see by self.rank and self.workers which part is its own");
  }
}

// A job that says how many samples a worker computes at once can't say so to a layer.
void CheckBatch(const LayerInput& input, const std::vector<Shape>& tops) {
  if (!input.options.batch_size || input.layer.bottom_size() > 0 || tops.empty()) return;
  if (tops[0].empty() || tops[0][0] == *input.options.batch_size) return;
  input.Fail("", "top \"" + input.layer.top(0) + "\" is " + ToString(tops[0]) +
                     ", but the batch is to be " + std::to_string(*input.options.batch_size) +
                     "; how many samples a Python layer makes, it decides by itself: set "
                     "training.batch_per_worker to that number for each device of a worker");
}

}  // namespace

std::unique_ptr<PythonLayer> MakeNetPythonLayer(const caffe::LayerParameter& layer,
                                                const std::vector<Shape>& bottoms,
                                                const Location& where, const PythonPlace& place) {
  PythonLayerOptions options;
  options.module = layer.python_param().module();
  options.layer = layer.python_param().layer();
  options.param_str = layer.python_param().param_str();
  options.directory = DirectoryOf(where.file);
  options.test = layer.phase() == caffe::TEST;
  options.rank = place.rank;
  options.workers = place.workers;
  for (size_t i = 0; i < bottoms.size(); ++i) {
    options.bottoms.push_back({layer.bottom(static_cast<int>(i)), bottoms[i]});
  }
  options.tops.assign(layer.top().begin(), layer.top().end());
  try {
    return MakePythonLayer(options);
  } catch (const PythonError& error) {
    ThrowPythonError(error, "setup", layer, where);
  }
}

void ThrowPythonError(const PythonError& error, const std::string& function,
                      const caffe::LayerParameter& layer, const Location& where) {
  throw ConfigError(error.traceback() + where.ToString() + ": layer \"" + layer.name() +
                    "\" (Python): " + function + " of " + layer.python_param().module() + "." +
                    layer.python_param().layer() + ": " + error.what());
}

LayerShapes InferPython(const LayerInput& input) {
  CheckParameter(input);
  caffe::LayerParameter layer = input.layer;
  if (!layer.has_phase()) layer.set_phase(input.options.state.phase());
  const std::unique_ptr<PythonLayer> made =
      MakeNetPythonLayer(layer, input.bottoms, input.options.locate(input.path));
  LayerShapes shapes{made->top_shapes(), {}};
  for (const PythonLayer::Parameter& parameter : made->parameters()) {
    ParameterDescription& description = shapes.parameters.emplace_back();
    description.shape = parameter.shape;
    description.first_values = parameter.values;
  }
  CheckBatch(input, shapes.tops);
  return shapes;
}

}  // namespace poseidon
