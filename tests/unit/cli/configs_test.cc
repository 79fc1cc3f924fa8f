// The jobs in configs/ are ready to run.
#include <gtest/gtest.h>

#include <filesystem>

#include "caffe_adapter/net/solver.h"
#include "proto/job_config.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;

TEST(Configs, EveryJobIsValidAndItsSolverIsThere) {
  int jobs = 0;
  for (const fs::directory_entry& entry : fs::directory_iterator("configs")) {
    if (entry.path().extension() != ".prototxt") continue;
    SCOPED_TRACE(entry.path());
    ++jobs;
    const JobConfig config = ReadJobConfig(entry.path());
    if (config.job.training().engine() == Training::REPLAY) continue;
    EXPECT_NO_THROW(LoadSolver(SolverPath(config)));
  }
  EXPECT_GE(jobs, 3);
}

// What the file says of itself: every layer a sixteenth of VGG19's 143,667,240 floats, but for
// biases (a quarter) and conv1_1's weights.
TEST(Configs, ReplayedVgg19IsASixteenth) {
  const JobConfig config = ReadJobConfig("configs/replay_vgg19.prototxt");
  double floats = 0;
  double milliseconds = 0;
  for (const ReplayLayer& layer : config.job.training().replay().layers()) {
    floats += static_cast<double>(layer.parameters() + (layer.inputs() + 1) * layer.outputs());
    milliseconds += layer.forward_ms() + layer.backward_ms();
  }
  EXPECT_NEAR(floats, 143667240 / 16.0, 0.002 * floats);
  EXPECT_NEAR(milliseconds, 8 / 35.5 * 1000, 0.5);
}

}  // namespace
}  // namespace poseidon
