// The job that measures links. (That it does: tests/hosts/doctor_test.py.)
#include "launch/doctor/link_measurement.h"

#include <gtest/gtest.h>

#include "proto/job_config.h"

namespace poseidon {
namespace {

// The doctor is asked about jobs of all kinds, some of which run now and have their ports.
TEST(ProbeJob, IsOneThatCanBeRunWhateverTheJobIs) {
  const Job job = ParseJobConfig(R"(
      cluster { workers: 8 servers: 4 deviation { worker: 7 compute_factor: 2 } }
      recovery { mode: SHRINK } elastic { min_workers: 3 }
      monitor { port: 9780 node_port: 9781 } security { allow: "10.0.0.0/8" mode: NONE }
      training { engine: REPLAY replay { layers { name: "fc" parameters: 10 } } })",
                                 "job")
                      .job;
  const Job probe = ProbeJob(job, 2);
  const Job checked = ParseJobConfig(probe.DebugString(), "doctor").job;
  EXPECT_EQ(checked.cluster().workers(), 2);
  EXPECT_EQ(checked.cluster().deviation_size(), 0);
  EXPECT_FALSE(checked.has_elastic());
  EXPECT_FALSE(checked.has_monitor());
  EXPECT_EQ(checked.security().allow(0), "10.0.0.0/8");  // nodes still need that
}

}  // namespace
}  // namespace poseidon
