// What a lane's thread sleeps by.
#include <gtest/gtest.h>
#include <poll.h>

#include "transport/zmq/zmq_inbox.h"

namespace poseidon {
namespace {

bool IsReadable(const ZmqWaker& waker) {
  pollfd item{waker.fd(), POLLIN, 0};
  return poll(&item, 1, 0) == 1;
}

TEST(ZmqWakerTest, WhoIsAwakeIsToldWithoutASystemCall) {
  ZmqWaker waker;
  waker.Wake();
  EXPECT_FALSE(IsReadable(waker));
  EXPECT_FALSE(waker.FallAsleep());
  EXPECT_TRUE(waker.Take());
  EXPECT_FALSE(waker.Take());
}

TEST(ZmqWakerTest, WhoSleepsIsWoken) {
  ZmqWaker waker;
  ASSERT_TRUE(waker.FallAsleep());
  waker.Wake();
  EXPECT_TRUE(IsReadable(waker));
  waker.GetUp();
  waker.Clear();
  EXPECT_TRUE(waker.Take());
  EXPECT_TRUE(waker.FallAsleep());
}

// A lane that had looked whether it was to end just before took the one wake-up of that for an
// envelope's, slept, and its node's end waited for it for ever.
TEST(ZmqWakerTest, WhoIsStoppedNeverSleepsAgain) {
  ZmqWaker waker;
  EXPECT_FALSE(waker.stopped());
  waker.Stop();
  EXPECT_TRUE(waker.stopped());
  EXPECT_TRUE(waker.Take());
  EXPECT_FALSE(waker.FallAsleep());
  EXPECT_FALSE(waker.FallAsleep());
  EXPECT_FALSE(waker.Take());
}

TEST(ZmqWakerTest, WhoSleepsIsStopped) {
  ZmqWaker waker;
  ASSERT_TRUE(waker.FallAsleep());
  waker.Stop();
  EXPECT_TRUE(IsReadable(waker));
}

}  // namespace
}  // namespace poseidon
