// What real processes get of a point, and which points they can't stand for.
#include "experiments/process_point.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>

#include "client/pace/compute_disturbance.h"
#include "core/error.h"
#include "proto/text_format.h"
#include "tests/unit/experiments/experiment_fixture.h"

namespace poseidon {
namespace {

// What the daemons of a point get that can't be started.
class ProcessJobTest : public ExperimentTest {
 protected:
  Job JobFor(const ExperimentPoint& point, const std::map<std::string, int>& cores = {}) const {
    ProcessOptions options;
    options.directory = Path("processes");
    RemoteOptions remote;
    remote.cores = cores;
    for (int i = 0; i < point.job.cluster().workers(); ++i) {
      remote.hosts.push_back({"host" + std::to_string(i), "127.0.0.1"});
    }
    remote.shell = "false";
    EXPECT_THROW(RunPoint(point, options, remote), Error);
    Job job;
    ReadTextFile(options.directory + "/job.prototxt", job);
    return job;
  }
};

TEST_F(ProcessJobTest, ReplaysVaryAsSimulatedMachinesDo) {
  ExperimentPoint point = Points(kExperiment)[0];
  EXPECT_EQ(JobFor(point).cluster().disturbance().SerializeAsString(),
            MeasuredDisturbance().SerializeAsString());
  point.job.mutable_cluster()->mutable_disturbance()->set_layer_spread(0.5);
  const Disturbance said = JobFor(point).cluster().disturbance();
  EXPECT_EQ(said.layer_spread(), 0.5);
  EXPECT_EQ(said.iteration_spread(), 0);
}

TEST_F(ProcessJobTest, AConditionWarmsUpAsLongAsItIsSimulated) {
  ExperimentPoint point = Points(kExperiment)[0];
  const int counted = ProcessOptions().iterations;
  EXPECT_EQ(JobFor(point).training().iterations(), 5 + counted);
  Deviation& deviation = *point.condition.add_deviation();
  deviation.set_worker(1);
  deviation.set_compute_factor(2);
  EXPECT_EQ(JobFor(point).training().iterations(), 20 + counted);
}

// The slowest host decides, as all wait for it.
TEST_F(ProcessJobTest, WorkersComputeOnTheCoresOfTheirHosts) {
  ExperimentPoint point = Points(kExperiment)[0];
  EXPECT_EQ(JobFor(point, {{"host0", 8}, {"host1", 6}, {"another", 4}}).training().threads(), 6);
  EXPECT_EQ(JobFor(point).training().threads(), 1);
  point.job.mutable_training()->set_threads(3);
  EXPECT_EQ(JobFor(point, {{"host0", 8}, {"host1", 6}}).training().threads(), 3);
}

// As those of all other systems, which have no local steps.
TEST_F(ExperimentTest, LocalStepsAreOnlySimulated) {
  ExperimentPoint point = Points(kExperiment)[0];
  EXPECT_EQ(WhyNotEmulated(point), std::nullopt);
  point.job.mutable_communication()->set_local_steps(4);
  EXPECT_EQ(WhyNotEmulated(point), "local steps are only simulated");
  EXPECT_EQ(WhyNotRun(point, 1000), "local steps are only simulated");
}

// A replay would not wait for the last layer before it updates the first.
TEST_F(ExperimentTest, ReplaysDoNotClipGradients) {
  ExperimentPoint point = Points(kExperiment)[0];
  point.model.mutable_update_rule()->set_deferred(true);
  for (const auto& reason : {WhyNotEmulated(point), WhyNotRun(point, 1000)}) {
    EXPECT_EQ(reason, "clip_gradients is only simulated, unless the net is trained");
  }
  point.job.mutable_training()->set_engine(Training::TORCH);
  EXPECT_EQ(WhyNotEmulated(point), std::nullopt);
}

}  // namespace
}  // namespace poseidon
