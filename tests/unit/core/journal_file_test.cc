// Files of records: torn, damaged, full, and wanted by two.
#include "core/files/journal_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <thread>

#include "core/error.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr size_t kHeaderBytes = 256;

class JournalFileTest : public testing::Test {
 protected:
  std::vector<std::string> Records() {
    JournalFile journal(path_, "a test");
    cut_bytes_ = journal.cut_bytes();
    std::vector<std::string> records;
    journal.ReadPast([&](std::string_view record) { records.emplace_back(record); });
    return records;
  }
  void Write(const std::vector<std::string>& records) const {
    JournalFile journal(path_, "a test");
    for (const std::string& record : records) journal.Append(record);
    journal.Sync();
  }
  std::string Content() const {
    std::ifstream file(path_, std::ios::binary);
    std::ostringstream content;
    content << file.rdbuf();
    return content.str();
  }
  void SetContent(const std::string& content) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << content;
  }
  // What opening the file throws.
  std::string Refusal(ExitCode code) {
    try {
      Records();
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), code) << error.what();
      return error.what();
    }
    return "nothing";
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.path() + "/journal";
  int64_t cut_bytes_ = 0;
};

TEST_F(JournalFileTest, RecordsAreFoundAgainAndMoreFollow) {
  EXPECT_THAT(Records(), IsEmpty());
  const std::string binary("\0\xff\n", 3);
  Write({"one", "", binary});
  EXPECT_THAT(Records(), ElementsAre("one", "", binary));
  Write({std::string(100000, 'x')});
  EXPECT_THAT(Records(), ElementsAre("one", "", binary, std::string(100000, 'x')));
  EXPECT_EQ(cut_bytes_, 0);
}

// Drawn by seed: a few records of up to 40 bytes.
std::vector<std::string> RandomRecords(std::mt19937_64& random) {
  std::vector<std::string> records(1 + random() % 5);
  for (std::string& record : records) {
    record.resize(random() % 40);
    for (char& byte : record) byte = static_cast<char>(random() % 3 == 0 ? 0 : random());
  }
  return records;
}

TEST_F(JournalFileTest, WhereverItIsCutTheWholeRecordsBeforeAreLeft) {
  std::mt19937_64 random(1);
  for (int attempt = 0; attempt < 20; ++attempt) {
    std::filesystem::remove(path_);
    const std::vector<std::string> records = RandomRecords(random);
    std::vector<size_t> ends;
    for (const std::string& record : records) {
      Write({record});
      ends.push_back(Content().size());
    }
    const std::string whole = Content();
    for (size_t size = 0; size <= whole.size(); size += size < kHeaderBytes ? 51 : 1) {
      SCOPED_TRACE(size);
      SetContent(whole.substr(0, size));
      const size_t left = static_cast<size_t>(
          std::count_if(ends.begin(), ends.end(), [&](size_t end) { return end <= size; }));
      const std::vector<std::string> expected(records.begin(),
                                              records.begin() + static_cast<int64_t>(left));
      ASSERT_EQ(Records(), expected);
      const size_t end = left > 0 ? ends[left - 1] : size < kHeaderBytes ? 0 : kHeaderBytes;
      EXPECT_EQ(cut_bytes_, static_cast<int64_t>(size - end));
      // What is written then is found where the torn record was.
      Write({"next"});
      ASSERT_EQ(Records().size(), left + 1);
    }
  }
}

TEST_F(JournalFileTest, EveryFlippedBitIsNoticed) {
  std::mt19937_64 random(2);
  for (int attempt = 0; attempt < 10; ++attempt) {
    std::filesystem::remove(path_);
    Write(RandomRecords(random));
    const std::string whole = Content();
    for (size_t byte = kHeaderBytes; byte < whole.size(); ++byte) {
      SCOPED_TRACE(byte);
      std::string damaged = whole;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << random() % 8));
      SetContent(damaged);
      ASSERT_THAT(Refusal(ExitCode::kDataError), HasSubstr(path_ + " is damaged at byte "));
    }
  }
}

TEST_F(JournalFileTest, ATailOfZerosIsCut) {
  Write({"one"});
  const std::string whole = Content();
  for (const int64_t zeros : {100, 200000}) {
    const std::string tail(static_cast<size_t>(zeros), '\0');
    SetContent(whole + tail);
    EXPECT_THAT(Records(), ElementsAre("one"));
    EXPECT_EQ(cut_bytes_, zeros);
    SetContent(whole + tail + "x");
    EXPECT_THAT(Refusal(ExitCode::kDataError), HasSubstr(" is damaged at byte "));
  }
}

// What a job writes down in a year has gigabytes.
TEST_F(JournalFileTest, AFileOfAnySizeIsRead) {
  constexpr int64_t kBytes = int64_t{5} << 30;
  Write({"one", std::string(100000, 'x'), "two"});
  const size_t end = Content().size();
  SetContent(Content() + std::string(100, 'd'));
  std::filesystem::resize_file(path_, kBytes);  // a hole takes no room
  EXPECT_THAT(Refusal(ExitCode::kDataError),
              HasSubstr("is damaged at byte " + std::to_string(end) + ": "));
  EXPECT_EQ(JournalFollower(path_).TakeNew().size(), 3u);
}

TEST_F(JournalFileTest, ThePastIsReadWhileMoreIsWritten) {
  Write({"one", "two"});
  JournalFile journal(path_, "a test");
  std::vector<std::string> records;
  journal.ReadPast([&](std::string_view record) {
    records.emplace_back(record);
    journal.Append("three");
  });
  EXPECT_THAT(records, ElementsAre("one", "two"));
  journal.ForgetPast();
  journal.ReadPast([](std::string_view) { ADD_FAILURE() << "it is forgotten"; });
}

TEST_F(JournalFileTest, AnotherFileIsLeftAlone) {
  const std::string content = std::string(300, 'a');
  SetContent(content);
  EXPECT_THAT(Refusal(ExitCode::kConfigError), HasSubstr("is no journal of this program"));
  EXPECT_EQ(Content(), content);
}

TEST_F(JournalFileTest, OnlyOneHasIt) {
  const JournalFile first(path_, "the scheduler of the job \"lenet\"");
  EXPECT_THAT(Refusal(ExitCode::kConfigError),
              HasSubstr("journal is in use by the scheduler of the job \"lenet\", process " +
                        std::to_string(getpid())));
}

TEST_F(JournalFileTest, ARecordThatHasNoRoomLeavesTheOthers) {
  // More than the limit is an error of the write, as on a full disk, once the signal is ignored.
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit unlimited{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  {
    JournalFile journal(path_, "a test");
    journal.Append("one");
    rlimit limit = unlimited;
    limit.rlim_cur = 1000;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    try {
      journal.Append(std::string(2000, 'x'));
      ADD_FAILURE() << "there was room";
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kFailure);
      EXPECT_THAT(error.what(), HasSubstr("can't write to " + path_ + ": File too large"));
    }
    journal.Append("two");
  }
  setrlimit(RLIMIT_FSIZE, &unlimited);
  std::signal(SIGXFSZ, before);
  EXPECT_THAT(Records(), ElementsAre("one", "two"));
}

// What is read of a journal that grows, and dies at any byte and is written to again, is what its
// next owner finds.
TEST_F(JournalFileTest, AFollowerSeesEachRecordOnce) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::filesystem::remove(path_);
    JournalFollower follower(path_);
    EXPECT_THAT(follower.TakeNew(), IsEmpty());
    std::vector<std::string> followed;
    for (int term = 0; term < 3; ++term) {
      const std::vector<std::string> records = RandomRecords(random);
      const std::string before = std::filesystem::exists(path_) ? Content() : "";
      Write(records);
      // As much as was there at some moments while it was written.
      const std::string whole = Content();
      std::vector<size_t> sizes(5);
      for (size_t& size : sizes) {
        size = before.size() + random() % (whole.size() - before.size() + 1);
      }
      std::sort(sizes.begin(), sizes.end());
      for (const size_t size : sizes) {
        SetContent(whole.substr(0, size));
        for (std::string& record : follower.TakeNew()) followed.push_back(std::move(record));
      }
    }
    for (std::string& record : follower.TakeNew()) followed.push_back(std::move(record));
    EXPECT_EQ(followed, Records());
    EXPECT_THAT(follower.TakeNew(), IsEmpty());
  }
}

// From now on this thread's locks are refused with the error, as on some network file systems.
void RefuseLocks(int error) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_flock, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program = {.len = std::size(filter), .filter = filter};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

class JournalWithoutLocksTest : public JournalFileTest {
 protected:
  // What opening the file throws where locks are refused with `error`.
  std::string RefusalBy(int error, ExitCode code) {
    std::string refusal;
    std::thread without_locks([&] {
      RefuseLocks(error);
      refusal = Refusal(code);
    });
    without_locks.join();
    return refusal;
  }
};

TEST_F(JournalWithoutLocksTest, SaysSo) {
  for (const int error : {ENOSYS, EOPNOTSUPP}) {
    EXPECT_THAT(RefusalBy(error, ExitCode::kConfigError),
                HasSubstr("can't lock " + path_ + ": " + std::strerror(error) +
                          "; its file system has no locks, and two programs"));
  }
}

// The lock service of an NFS client may come up after the scheduler.
TEST_F(JournalWithoutLocksTest, MayHaveThemLaterWhereTheirServiceDoesNotAnswer) {
  EXPECT_THAT(RefusalBy(ENOLCK, ExitCode::kFailure),
              HasSubstr("can't lock " + path_ + ": " + std::strerror(ENOLCK) +
                        "; its file system has no locks, or its lock service does not answer"));
}

TEST_F(JournalFileTest, AFollowerOfWhatIsNoJournalSeesNothing) {
  EXPECT_THAT(JournalFollower(directory_.Path("nowhere")).TakeNew(), IsEmpty());
  EXPECT_THAT(JournalFollower(directory_.Path("")).TakeNew(), IsEmpty());
  SetContent(std::string(1000, 'a'));
  EXPECT_THAT(JournalFollower(path_).TakeNew(), IsEmpty());
}

}  // namespace
}  // namespace poseidon
