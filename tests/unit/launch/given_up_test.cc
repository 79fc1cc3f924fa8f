#include "launch/given_up.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/journal.pb.h"
#include "tests/unit/temporary_directory.h"
#include "transport/address.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

void Add(Role role, int rank, uint64_t incarnation, wire::JournalRecord& record) {
  wire::Node& lost = *record.mutable_hold()->add_lost();
  lost.set_role(static_cast<uint32_t>(role));
  lost.set_rank(rank);
  record.mutable_hold()->add_incarnations(incarnation);
}

wire::JournalRecord Hold(const std::string& cause) {
  wire::JournalRecord record;
  record.mutable_hold()->set_cause(cause);
  return record;
}

TEST(GivenUpProcessesTest, WhoLeavesIsNotGivenUp) {
  const TemporaryDirectory directory;
  const std::string path = directory.Path(kJournalFile);
  GivenUpProcesses given_up(path);
  EXPECT_THAT(given_up.TakeNew(), IsEmpty());
  JournalFile journal(path, "a test");
  const auto append = [&](const wire::JournalRecord& record) {
    journal.Append(record.SerializeAsString());
  };
  append(Hold("the exchange hangs"));
  wire::JournalRecord lost = Hold("no heartbeat for 9 s");
  Add(Role::kWorker, 1, 11, lost);
  Add(Role::kServer, 2, 102, lost);
  append(lost);
  EXPECT_THAT(given_up.TakeNew(),
              ElementsAre(Pair(11, "no heartbeat for 9 s"), Pair(102, "no heartbeat for 9 s")));
  // One that leaves, while another is lost.
  wire::JournalRecord change = Hold("the workers change");
  Add(Role::kWorker, 3, 13, change);
  wire::Node& left = *change.mutable_hold()->add_left();
  left.set_role(static_cast<uint32_t>(Role::kWorker));
  left.set_rank(2);
  change.mutable_hold()->add_incarnations(12);
  append(change);
  EXPECT_THAT(given_up.TakeNew(), ElementsAre(Pair(13, "the workers change")));
  // Another one with that rank, and one that may leave and is lost before.
  wire::JournalRecord leave;
  leave.mutable_leave()->set_worker(2);
  append(leave);
  wire::JournalRecord later = Hold("no heartbeat for 9 s");
  Add(Role::kWorker, 2, 22, later);
  append(later);
  EXPECT_THAT(given_up.TakeNew(), ElementsAre(Pair(22, "no heartbeat for 9 s")));
}

}  // namespace
}  // namespace poseidon
