// What a scheduler makes of the journal of another build.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"
#include "scheduler/journal/journal.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

class JournalBuildTest : public testing::Test {
 protected:
  static Journal::Owner OwnerOf(const std::string& build) { return {1, 2, "job", build}; }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.Path("scheduler.journal");
};

// Nobody is led by it any more; whoever starts the job again is told how it has ended.
TEST_F(JournalBuildTest, OfAJobThatHasEndedAnyBuildTells) {
  wire::JournalRecord end;
  end.mutable_end()->set_reason("training is finished");
  Journal(path_, OwnerOf("1+aa")).Append(end);
  EXPECT_EQ(Journal(path_, OwnerOf("1+bb")).state().end->reason(), "training is finished");
}

// What it has written that this one does not know is no damage.
TEST_F(JournalBuildTest, IsRefusedForThatWhateverIsInIt) {
  wire::JournalRecord of_another_kind;
  of_another_kind.GetReflection()->MutableUnknownFields(&of_another_kind)->AddVarint(999, 1);
  Journal(path_, OwnerOf("1+aa")).Append(of_another_kind);
  EXPECT_THAT(MessageOf<ConfigError>([&] { Journal journal(path_, OwnerOf("1+bb")); }),
              testing::HasSubstr("is of a scheduler of build 1+aa, and this is build 1+bb"));
}

}  // namespace
}  // namespace poseidon
