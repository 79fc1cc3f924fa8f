// What recovery costs while nobody dies, in virtual time. That of workers that keep what was before
// the last update takes no network, and is tests/bench/network/recovery.py's to measure.
#include <gtest/gtest.h>

#include <string>

#include "tests/simulation/predictions/planned_training.h"

namespace poseidon {
namespace {

using C = Communication;

constexpr int kNodes = 8;
// The aim where servers update.
constexpr double kMostWithBackups = 1.05;

// By how much backups make an iteration of VGG19 longer.
double RatioOf(C::Policy policy) {
  const ModelSpec vgg19 = PlannedNets().front().model;
  Job job = PlannedJob(kNodes, kNodes, "10Gbps", "50us", true);
  job.mutable_communication()->set_policy(policy);
  job.mutable_communication()->set_update_at(C::SERVERS);
  const double without = TrainAsPlanned(job, vgg19).simulated;
  job.mutable_recovery()->set_mode(Recovery::REPLACE);
  const double ratio = TrainAsPlanned(job, vgg19).simulated / without;
  testing::Test::RecordProperty(C::Policy_Name(policy), std::to_string(ratio));
  return ratio;
}

// A server's sums go to backups beside its values for each worker: an eighth of its part more.
TEST(RecoveryCostTest, BackupsOfServersThatShareTheLayers) {
  const double ratio = RatioOf(C::ALL_PS);
  EXPECT_GT(ratio, 1);
  EXPECT_LE(ratio, 1.0 + 1.0 / kNodes);
  EXPECT_LE(ratio, kMostWithBackups);
}

// Of Adam's scheme one server owns the largest layer, which all others wait for. It sends the
// backup factors, which of VGG19's largest layer and 8 workers are a fourteenth of it.
TEST(RecoveryCostTest, BackupsOfALayerThatOneServerOwns) {
  const double ratio = RatioOf(C::ALL_ADAM);
  EXPECT_GT(ratio, 1);
  EXPECT_LE(ratio, 1.0 + 1.0 / 14 / (kNodes - 1));
}

}  // namespace
}  // namespace poseidon
