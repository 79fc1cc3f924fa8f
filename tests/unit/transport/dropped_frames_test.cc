#include "transport/dropped_frames.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/unit/log_lines.h"

namespace poseidon {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Envelope FrameOf(int worker) {
  Envelope envelope;
  envelope.kind = MessageKind::kGradient;
  envelope.from = {{Role::kWorker, worker}, kFirstDataLane};
  envelope.bucket = 7;
  return envelope;
}

TEST(DroppedFramesTest, CountsAllAndLogsTheFirstInvalidOneOfAPeer) {
  std::atomic<int64_t> count{0};
  DroppedFrames dropped(count);
  const LogLines log;
  dropped.AddStale();
  EXPECT_EQ(count, 1);
  EXPECT_TRUE(log.lines().empty());
  dropped.AddInvalid(FrameOf(2), "of a wrong kind");
  dropped.AddInvalid(FrameOf(2), "of a wrong kind");
  dropped.AddInvalid(FrameOf(3), "of another job");
  EXPECT_EQ(count, 4);
  EXPECT_THAT(log.lines(), ElementsAre(AllOf(HasSubstr("dropped a frame of a wrong kind: "),
                                             HasSubstr("worker 2"), HasSubstr("bucket 7")),
                                       AllOf(HasSubstr("of another job"), HasSubstr("worker 3"))));
}

// Who sends makes the names up.
TEST(DroppedFramesTest, NamesNoMorePeersThanAJobHas) {
  std::atomic<int64_t> count{0};
  DroppedFrames dropped(count);
  const LogLines log;
  constexpr int kPeers = 10'000;
  for (int worker = 0; worker < kPeers; ++worker) {
    dropped.AddInvalid(FrameOf(worker), "of a wrong kind");
  }
  EXPECT_EQ(count, kPeers);
  EXPECT_EQ(log.lines().size(), kMostLogged);
}

// Lanes of one node count together; each keeps a log of its own.
TEST(DroppedFramesTest, SharesACount) {
  std::atomic<int64_t> count{0};
  DroppedFrames one(count);
  DroppedFrames other(count);
  one.AddStale();
  other.AddStale();
  EXPECT_EQ(count, 2);
}

}  // namespace
}  // namespace poseidon
