// A communicator sees to it that its process may open what it needs.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include "core/process/resource_limits.h"
#include "poseidon/communicator.h"
#include "tests/free_endpoints.h"

namespace poseidon {
namespace {

// Of the soft limit; what else the process has opened, as for other groups of ranks, counts, too.
TEST(CommunicatorFilesTest, RaisesTheLimit) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const uint64_t few = CountOpenFiles() + 100;
  const rlimit low{few, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const Communicator alone({.rank = 0, .endpoints = FreeEndpoints(1)});
  rlimit raised{};
  getrlimit(RLIMIT_NOFILE, &raised);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_GT(raised.rlim_cur, few);
}

}  // namespace
}  // namespace poseidon
