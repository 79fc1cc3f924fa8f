#include "cli/model_source.h"

#include <cstdio>
#include <utility>

#include "caffe_adapter/net/net.h"
#include "caffe_adapter/net/solver.h"
#include "core/error.h"
#include "planner/model_times.h"
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
    Solver solver = LoadSolver(options.solver);
    return {std::move(solver.train), std::move(solver.parameter)};
  }
  Source source;
  const TextLocations locations = ReadTextFile(options.net, source.net.net);
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
  try {
    return DescribeNet(net.net, net.phase, describe);
  } catch (const DataError& error) {
    throw DataError(std::string(error.what()) +
                    "; only the shape of the data is needed: make the database, or give the shape "
                    "with --input=CxHxW (--input=1x28x28), `input` in an experiment file");
  }
}

ModelSpec ModelOfNet(const ModelSource& options) {
  const Source source = ReadSource(options);
  ModelSpec model = ToModelSpec(Describe(source.net, options), source.solver);
  if (model.layers_size() == 0) {
    throw ConfigError(source.net.locate(""), "no layer of the net learns anything");
  }
  return model;
}

ModelSpec ModelOfProfile(const std::string& path) {
  Job profile;
  ReadTextFile(path, profile);
  if (profile.training().engine() != Training::REPLAY) {
    throw ConfigError(path + ": is no profile; `poseidon time --out=FILE` writes one");
  }
  return DescribeReplay(profile.training().replay()).model;
}

ModelSpec ModelOf(const ModelSource& source) {
  if (source.replay) return DescribeReplay(*source.replay).model;
  return source.profile.empty() ? ModelOfNet(source) : ModelOfProfile(source.profile);
}

}  // namespace

ModelSpec LoadModel(const ModelSource& source) {
  ModelSpec model = ModelOf(source);
  if (!source.images_per_second) return model;
  return WithImagesPerSecond(std::move(model), *source.images_per_second);
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
