#include "launch/job_cluster.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace poseidon {
namespace {

// Without what the environment of the tests says.
class BlasThreadsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : kNames) unsetenv(name);
  }
  void TearDown() override { SetUp(); }

  static constexpr const char* kNames[] = {"OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS",
                                           "OMP_NUM_THREADS"};
};

TEST_F(BlasThreadsTest, AreThoseOfTheJobsArithmetic) {
  EXPECT_EQ(BlasThreads(1), "OPENBLAS_NUM_THREADS=1");
  EXPECT_EQ(BlasThreads(16), "OPENBLAS_NUM_THREADS=16");
}

// As on hosts, of which only a worker of our own knows the cores.
TEST_F(BlasThreadsTest, AreTheProgramsAffairWhereTheJobDoesNotSay) {
  EXPECT_EQ(BlasThreads(0), std::nullopt);
}

TEST_F(BlasThreadsTest, AreTheUsersWhoHasSaidSo) {
  for (const char* name : kNames) {
    setenv(name, "8", 1);
    EXPECT_EQ(BlasThreads(1), std::nullopt) << name;
    unsetenv(name);
  }
}

}  // namespace
}  // namespace poseidon
