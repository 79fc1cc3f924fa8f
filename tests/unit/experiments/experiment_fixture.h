// An experiment file to change, and what it asks for.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "core/error.h"
#include "experiments/experiment_file.h"
#include "experiments/experiment_points.h"
#include "proto/replay_model.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {

inline constexpr char kExperiment[] = R"(name: "test"
net {
  name: "small"
  replay {
    batch: 4
    layers { name: "conv" parameters: 1000 forward_ms: 1 backward_ms: 2 }
    layers { name: "fc" type: "InnerProduct" inputs: 50 outputs: 20 forward_ms: 1 backward_ms: 2 }
  }
}
net { name: "other" replay { layers { name: "a" parameters: 7 forward_ms: 1 } } }
system {
  name: "calibrated"
  policy: "WFBP"
  communication { kv_pair_bytes: 400 }
  cluster { network { goodput_share: 0.5 bandwidth: "7Gbps" } }
}
system { name: "rows" policy: "ALL_TORUS" grid_row: 2 }
sweep {
  net: "small"
  system: "wfbp" system: "calibrated"
  workers: 2 workers: 4
  bandwidth: "1Gbps" bandwidth: "10Gbps"
  cluster { network { goodput_share: 0.9 } flops: 1e12 }
  communication { lanes: 2 kv_pair_bytes: 4000 }
}
sweep { system: "rows" workers: 4 devices_per_worker: 1 devices_per_worker: 8 }
published { net: "small" workers: 4 bandwidth: "10Gbps" speedup: 3 source: "a book" fitted: true }
published { net: "small" efficiency: 0.5 source: "another" }
)";

class ExperimentTest : public testing::Test {
 protected:
  std::string Path(const std::string& name) const { return directory_.Path(name); }

  ExperimentFile Read(const std::string& text) const {
    return ReadExperiment(directory_.Write("e.prototxt", text));
  }

  static std::map<std::string, ExperimentModel> Models(const Experiment& experiment) {
    std::map<std::string, ExperimentModel> models;
    for (const Net& net : experiment.net()) {
      models[net.name()].model = DescribeReplay(net.replay()).model;
    }
    return models;
  }

  std::vector<ExperimentPoint> Points(const std::string& text) const {
    const ExperimentFile file = Read(text);
    return PointsOf(file, Models(file.experiment));
  }

  // What reading the text or making its points is refused with.
  std::string Refusal(const std::string& text) const {
    try {
      Points(text);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "not refused";
  }

  TemporaryDirectory directory_;
};

inline std::string Replaced(std::string text, const std::string& what, const std::string& by) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

}  // namespace poseidon
