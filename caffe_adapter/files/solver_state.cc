#include "caffe_adapter/files/solver_state.h"

#include <glog/logging.h>

#include <algorithm>
#include <map>
#include <optional>

#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/files/hdf5_file.h"
#include "caffe_adapter/files/hdf5_writer.h"
#include "core/arithmetic/update_rule.h"
#include "core/error.h"
#include "proto/update_rule_message.h"

namespace poseidon {
namespace {

// Floats for each parameter: what the session keeps, and what of it is optimizer state.
struct StateFloats {
  int kept;
  int optimizer;
};

StateFloats StateOf(const ModelSpec& model) {
  const UpdateRule rule = ToUpdateRule(model.update_rule());
  const int kept = OptimizerStatePerParameter(rule);
  return {kept, rule.deferred ? kept - 1 : kept};
}

// For what a file has beside floats, the layers' settings and the blobs' shapes: a tenth of it does
// for the 674 layers of ResNet-152.
constexpr int64_t kMostHeaderBytes = int64_t{1} << 20;

// A learnable blob of the net as Caffe numbers them.
struct LearnableBlob {
  std::string name;  // for people: layer "fc1", blob 0
  Shape shape;
  std::optional<int64_t>
      begin;  // its first parameter's number in the model; none: not in the model
};

// Where the parameters of the model's layers begin.
std::map<std::string, int64_t> Begins(const ModelSpec& model) {
  std::map<std::string, int64_t> begins;
  int64_t begin = 0;
  for (const LayerSpec& layer : model.layers()) {
    begins[layer.name()] = begin;
    for (const BlobSpec& blob : layer.blobs()) {
      begin += Count(Shape(blob.shape().begin(), blob.shape().end()));
    }
  }
  return begins;
}

std::vector<LearnableBlob> LearnableBlobs(const NetDescription& net, const ModelSpec& model) {
  const std::map<std::string, int64_t> begins = Begins(model);
  std::vector<LearnableBlob> blobs;
  for (const LayerDescription& layer : net.layers) {
    const auto found = begins.find(layer.name());
    int64_t offset = 0;
    for (size_t b = 0; b < layer.parameters.size(); ++b) {
      const ParameterDescription& parameter = layer.parameters[b];
      if (parameter.owner) continue;
      LearnableBlob blob{
          "layer \"" + layer.name() + "\", blob " + std::to_string(b), parameter.shape, {}};
      if (found != begins.end()) blob.begin = found->second + offset;
      offset += Count(parameter.shape);
      blobs.push_back(std::move(blob));
    }
  }
  return blobs;
}

PreparedFile PrepareHdf5(const std::string& path, const SolverState& state) {
  Hdf5Writer file(path);
  file.AddInteger("iter", static_cast<int32_t>(state.iteration));
  file.AddText("learned_net", state.learned_net);
  file.AddInteger("current_step", state.current_step);
  file.AddGroup("history");
  for (size_t i = 0; i < state.history.size(); ++i) {
    file.AddFloats("history/" + std::to_string(i), state.history[i].shape, state.history[i].values);
  }
  return file.Prepare();
}

[[noreturn]] void RefuseModel(const std::string& path) {
  throw DataError(path +
                  ": is a model, and no solver state; give it as --weights, or give the "
                  ".solverstate that was written with it");
}

SolverState ReadHdf5(const std::string& path) {
  const Hdf5File file(path);
  if (file.Has("data") && !file.Has("iter")) RefuseModel(path);
  SolverState state;
  state.iteration = file.ReadInteger("iter");
  state.learned_net = file.ReadText("learned_net");
  state.current_step = static_cast<int>(file.ReadInteger("current_step"));
  if (state.iteration < 0) throw DataError(path + ": its iteration is negative");
  for (int i = 0; file.Has("history/" + std::to_string(i)); ++i) {
    const std::string dataset = "history/" + std::to_string(i);
    state.history.push_back({file.ShapeOf(dataset), file.Read(dataset)});
  }
  return state;
}

}  // namespace

PreparedFile PrepareSolverState(const std::string& path, const SolverState& state) {
  if (IsHdf5Path(path)) return PrepareHdf5(path, state);
  caffe::SolverState file;
  file.set_iter(static_cast<int32_t>(state.iteration));
  file.set_learned_net(state.learned_net);
  file.set_current_step(state.current_step);
  for (const HistoryBlob& blob : state.history) {
    *file.add_history() = ToBlobProto(blob.shape, blob.values);
  }
  return PrepareBinaryFile(path, file);
}

void WriteSolverState(const std::string& path, const SolverState& state) {
  PrepareSolverState(path, state).Place();
}

SolverState ReadSolverState(const std::string& path) {
  if (IsHdf5Path(path)) return ReadHdf5(path);
  caffe::SolverState file;
  try {
    ReadBinaryFile(path, file);
  } catch (const DataError&) {
    if (IsBinaryModel(path)) RefuseModel(path);
    throw;
  }
  // Nearly any file can be read as a message whose fields are all optional.
  if (!file.has_iter() || file.iter() < 0) {
    if (IsBinaryModel(path)) RefuseModel(path);
    throw DataError(path + ": is no .solverstate or is truncated or corrupt: it has no iteration");
  }
  SolverState state;
  state.iteration = file.iter();
  state.learned_net = file.learned_net();
  state.current_step = file.current_step();
  for (const caffe::BlobProto& blob : file.history()) {
    try {
      state.history.push_back({BlobProtoShape(blob), ToValues(blob)});
    } catch (const DataError& error) {
      throw DataError(path + ": " + error.what());
    }
  }
  return state;
}

void CheckFitsBinaryFiles(const NetDescription& net, const ModelSpec& model) {
  int64_t written = 0;  // what layers share is so in each of them
  int64_t owned = 0;
  for (const LayerDescription& layer : net.layers) {
    for (const ParameterDescription& blob : layer.parameters) written += Count(blob.shape);
    owned += static_cast<int64_t>(layer.owned_floats());
  }
  const int state = StateOf(model).optimizer;
  const int64_t floats = std::max(written, owned * state);
  if (floats * static_cast<int64_t>(sizeof(float)) <= kMostBinaryBytes - kMostHeaderBytes) return;
  throw ConfigError(
      "the net has " + std::to_string(written) + " parameters, for which solver type " +
      model.update_rule().type() + " keeps " + std::to_string(state) +
      " numbers each, trained or not, and Protobuf's limit for a snapshot's file is 2 GiB; write "
      "snapshot_format: HDF5 in the solver");
}

std::vector<HistoryBlob> ToHistory(const NetDescription& net, const ModelSpec& model,
                                   std::span<const float> state) {
  const auto [kept, floats] = StateOf(model);
  CHECK_EQ(static_cast<int64_t>(state.size()), ParameterCount(model) * kept);
  std::vector<HistoryBlob> history;
  for (int part = 0; part < floats; ++part) {
    for (const LearnableBlob& blob : LearnableBlobs(net, model)) {
      HistoryBlob stored{blob.shape, std::vector<float>(Count(blob.shape))};
      for (size_t i = 0; blob.begin && i < stored.values.size(); ++i) {
        stored.values[i] = state[(*blob.begin + i) * kept + part];
      }
      history.push_back(std::move(stored));
    }
  }
  return history;
}

std::vector<float> FromHistory(const std::string& path, const NetDescription& net,
                               const ModelSpec& model, const std::vector<HistoryBlob>& history) {
  const auto [kept, floats] = StateOf(model);
  const std::vector<LearnableBlob> blobs = LearnableBlobs(net, model);
  const size_t expected = blobs.size() * floats;
  // What another type of solver keeps is another number for each blob.
  const bool cut_off = history.empty() || history.size() % blobs.size() != 0;
  if (history.size() < expected && cut_off) {
    throw DataError(path + ": has " + std::to_string(history.size()) + " of " +
                    std::to_string(expected) +
                    " blobs of history, and the first that it lacks is of " +
                    blobs[history.size() % blobs.size()].name +
                    ": it was cut off, or is of another net; go on from another snapshot");
  }
  if (history.size() != expected) {
    throw DataError(
        path + ": has " + std::to_string(history.size()) + " blobs of history; the net has " +
        std::to_string(blobs.size()) + " learnable blobs and solver type " +
        model.update_rule().type() + " keeps " + std::to_string(floats) + " for each, so " +
        std::to_string(expected) +
        " are expected: it is of another net or another type of solver, or was cut off");
  }
  std::vector<float> state(ParameterCount(model) * kept);
  for (int part = 0; part < floats; ++part) {
    for (size_t b = 0; b < blobs.size(); ++b) {
      const HistoryBlob& stored = history[part * blobs.size() + b];
      if (Count(stored.shape) != Count(blobs[b].shape)) {
        throw DataError(path + ": the history of " + blobs[b].name + " is " +
                        ToString(stored.shape) + "; the net's blob is " + ToString(blobs[b].shape));
      }
      for (size_t i = 0; blobs[b].begin && i < stored.values.size(); ++i) {
        state[(*blobs[b].begin + i) * kept + part] = stored.values[i];
      }
    }
  }
  return state;
}

}  // namespace poseidon
