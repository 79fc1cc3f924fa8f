// What failures cost, as `poseidon simulate --failures` answers it.
#include "simulation/failures/failure_simulation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>

#include "core/error.h"
#include "tests/simulation/planned_training.h"

namespace poseidon {
namespace {

using testing::HasSubstr;

constexpr double kHour = 3600;

// Layers of random sizes, one of them an inner product.
ModelSpec RandomModel(std::mt19937_64& random) {
  ModelSpec model;
  const int layers = 1 + static_cast<int>(random() % 4);
  for (int i = 0; i < layers; ++i) {
    LayerSpec& layer = *model.add_layers();
    layer.set_name("layer" + std::to_string(i));
    layer.add_blobs()->add_shape(1000 + static_cast<int64_t>(random() % 2'000'000));
    layer.set_forward_ms(1 + static_cast<double>(random() % 20));
    layer.set_backward_ms(2 + static_cast<double>(random() % 40));
  }
  model.set_batch(32);
  return model;
}

Job JobOf(int workers, int servers, Communication::Policy policy) {
  Job job = PlannedJob(workers, servers, "10Gbps", "50us", true);
  job.mutable_communication()->set_policy(policy);
  job.mutable_recovery()->set_mode(Recovery::REPLACE);
  return job;
}

FailureScenario Scenario(double mtbf, int losses) {
  return {.mtbf = mtbf, .replacement = 30, .seed = 1, .losses = losses};
}

TEST(FailureSimulationTest, Tries) {
  std::mt19937_64 random(1);
  const ModelSpec model = RandomModel(random);
  for (double mtbf : {0.05, 0.2, 1.0, 5.0, 100.0, 1e6}) {
    const Job job = JobOf(4, 4, Communication::ALL_PS);
    const FailureCosts c = SimulateFailures(job, model, Scenario(mtbf * kHour, 10));
    printf("mtbf %g h: iteration %g wall %g kept %g simulated %ld losses %d recoveries %d redone %ld detected %g restored %g longest %g start %g goodput %.9f\n", mtbf, c.iteration, c.wall, c.kept, (long)c.simulated, c.losses, c.recoveries, (long)c.redone, c.detected, c.restored, c.longest, c.start, c.Goodput());
  }
}

}  // namespace
}  // namespace poseidon
