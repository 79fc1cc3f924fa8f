#include "cli/input/model_source.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "caffe_adapter/net/net.h"
#include "caffe_adapter/net/solver.h"
#include "cli/input/input_file.h"
#include "core/error.h"
#include "planner/cost/cluster_model.h"
#include "planner/model_times.h"
#include "proto/cluster_rates.h"
#include "proto/job_config.h"
#include "proto/replay_model.h"
#include "proto/text_format.h"

namespace poseidon {
namespace {

// A net, and the solver's part of what a worker declares.
struct Source {
  SolverNet net;
  caffe::SolverParameter solver;
};

Source ReadSource(const ModelSource& options) {
  if (!options.solver.empty()) {
    Solver solver = LoadSolver(CheckInputFile(options.solver));
    return {std::move(solver.train), std::move(solver.parameter)};
  }
  Source source;
  const TextLocations locations = ReadTextFile(CheckInputFile(options.net), source.net.net);
  source.net.locate = [locations](const std::string& path) {
    return locations.Find(caffe::NetParameter::default_instance(), path);
  };
  return source;
}

NetDescription Describe(const SolverNet& net, const ModelSource& options) {
  DescribeOptions describe;
  describe.state = net.state;
  describe.locate = net.locate;
  describe.batch_size = options.batch;
  describe.record_shape = options.record_shape;
  describe.data_optional = true;
  try {
    return DescribeNet(net.net, net.phase, describe);
  } catch (const DataError& error) {
    throw DataError(std::string(error.what()) +
                    "; no data are needed, but the shape of a sample is: give its channels, height "
                    "and width with --input=CxHxW, such as --input=3x224x224 (`input` in an "
                    "experiment file)");
  }
}

// Or a plan would be of other samples than were asked for.
void CheckRecordShapeIsUsed(const std::vector<SampleInput>& inputs, const Location& net) {
  const auto given = [](const SampleInput& input) { return input.source == ShapeSource::kGiven; };
  if (std::ranges::any_of(inputs, given)) return;
  throw ConfigError(net,
                    "--input (`input` in an experiment file) says the shape of the records that a "
                    "Data, ImageData or HDF5Data layer reads, and the net has no such layer; "
                    "change the shape in its Input, DummyData or MemoryData layer, or the "
                    "crop_size of WindowData");
}

LoadedModel ModelOfNet(const ModelSource& options) {
  const Source source = ReadSource(options);
  const NetDescription net = Describe(source.net, options);
  LoadedModel loaded = {WithBatches(ToModelSpec(net, source.solver), source.solver.iter_size()),
                        SampleInputsOf(net)};
  if (loaded.model.layers_size() == 0) {
    throw ConfigError(source.net.locate(""), "no layer of the net learns anything");
  }
  if (options.record_shape) CheckRecordShapeIsUsed(loaded.inputs, source.net.locate(""));
  return loaded;
}

LoadedModel ModelOfProfile(const std::string& path) {
  Job profile;
  ReadTextFile(CheckInputFile(path), profile);
  if (profile.training().engine() != Training::REPLAY) {
    throw ConfigError(path + ": is no profile; `poseidon time --out=FILE` writes one");
  }
  LoadedModel loaded{DescribeReplay(profile.training().replay()).model, {}};
  const Cluster& machine = profile.cluster();
  Job taken;  // of what the file says of its cluster
  if (machine.has_disturbance()) {
    loaded.disturbance = machine.disturbance();
    *taken.mutable_cluster()->mutable_disturbance() = machine.disturbance();
  }
  if (machine.has_flops()) {
    loaded.flops = machine.flops();
    taken.mutable_cluster()->set_flops(machine.flops());
  }
  try {
    CheckClusterAndCommunication(taken);
  } catch (const ConfigError& error) {
    throw ConfigError(path + ": " + error.what());
  }
  return loaded;
}

// Of an iteration; 0 where nothing says how long layers take.
double MillisecondsOf(const ModelSpec& model) {
  double sum = 0;
  for (const LayerSpec& layer : model.layers()) sum += layer.forward_ms() + layer.backward_ms();
  return sum;
}

LoadedModel ModelOf(const ModelSource& source) {
  if (source.replay) return {DescribeReplay(*source.replay).model, {}};
  if (!source.profile.empty()) return ModelOfProfile(source.profile);
  return ModelOfNet(source);
}

}  // namespace

LoadedModel LoadModel(const ModelSource& source) {
  LoadedModel loaded = ModelOf(source);
  if (!source.images_per_second) return loaded;
  // What was measured tells times, but not of how many operations.
  const bool timed = TimesAreKnown(loaded.model);
  if (!timed) {
    loaded.flops =
        NearestOperationRate(OperationsPerSample(loaded.model) * *source.images_per_second);
  }
  const double before = MillisecondsOf(loaded.model);
  loaded.model = WithImagesPerSecond(std::move(loaded.model), *source.images_per_second);
  // Another device than the profile's is as many times as fast when it rebuilds gradients.
  if (timed && loaded.flops) {
    loaded.flops = NearestOperationRate(*loaded.flops * before / MillisecondsOf(loaded.model));
  }
  return loaded;
}

Shape ParseShape(const std::string& what, const std::string& text) {
  int extents[3];
  int read = 0;
  const int found =
      std::sscanf(text.c_str(), "%9dx%9dx%9d%n", &extents[0], &extents[1], &extents[2], &read);
  const bool whole = found == 3 && static_cast<size_t>(read) == text.size();
  if (!whole || extents[0] < 1 || extents[1] < 1 || extents[2] < 1) {
    throw ConfigError(what + " is \"" + text +
                      "\"; it must be channels, height and width: 3x32x32");
  }
  return {extents[0], extents[1], extents[2]};
}

}  // namespace poseidon
