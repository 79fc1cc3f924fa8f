#include "transport/security/job_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class JobKeyFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "job_key_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string path() const { return (directory_ / "job.key").string(); }
  void WriteText(const std::string& text) const {
    fs::remove(path());
    std::ofstream(path()) << text;
    chmod(path().c_str(), 0600);
  }
  // What reading says.
  std::string Complaint() const {
    try {
      JobKey::Read(path());
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  }

  fs::path directory_;
};

TEST_F(JobKeyFile, IsReadAsWritten) {
  const JobKey key = JobKey::Make();
  key.Write(path());
  const JobKey read = JobKey::Read(path());
  EXPECT_EQ(read.public_key, key.public_key);
  EXPECT_EQ(read.secret_key, key.secret_key);
  EXPECT_NE(JobKey::Make().secret_key, key.secret_key);
}

TEST_F(JobKeyFile, BelongsToItsOwnerWhateverTheUmask) {
  for (const mode_t mask : {0000, 0777}) {
    const mode_t before = umask(mask);
    JobKey::Make().Write(path());
    umask(before);
    struct stat status {};
    ASSERT_EQ(stat(path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0600u);
    fs::remove(path());
  }
}

TEST_F(JobKeyFile, IsNeverReplaced) {
  JobKey::Make().Write(path());
  try {
    JobKey::Make().Write(path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("is there already"));
  }
}

// So the same command works once there is room.
TEST_F(JobKeyFile, IsNotThereIfTheDiskIsFull) {
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  rlimit usual{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &usual), 0);
  for (const rlim_t room : {0, 1, 30, 60}) {
    const rlimit limit = {room, usual.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const std::string complaint = MessageOf<Error>([&] { JobKey::Make().Write(path()); });
    setrlimit(RLIMIT_FSIZE, &usual);
    EXPECT_THAT(complaint, HasSubstr("File too large")) << room;
    EXPECT_TRUE(fs::is_empty(fs::path(path()).parent_path())) << room;
  }
  signal(SIGXFSZ, handler);
  JobKey::Make().Write(path());
  EXPECT_EQ(Complaint(), "");
}

TEST_F(JobKeyFile, MustNotBeOpenToOthers) {
  JobKey::Make().Write(path());
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0610, 0644}) {
    chmod(path().c_str(), mode);
    EXPECT_THAT(Complaint(), HasSubstr("chmod 600 " + path())) << mode;
  }
  chmod(path().c_str(), 0400);
  EXPECT_EQ(Complaint(), "");
}

TEST_F(JobKeyFile, SaysWhatIsWrongWithIt) {
  EXPECT_THAT(Complaint(), HasSubstr("No such file"));
  const std::string begin = "poseidon job key 1: ";
  const std::string secret = JobKey::Make().secret_key;
  WriteText(begin + secret + "\n");
  EXPECT_EQ(Complaint(), "");
  for (const std::string& text : {std::string(), secret, begin, begin + secret,
                                  begin + secret + "\nmore", begin + secret.substr(1) + "\n",
                                  begin + std::string(40, '~') + "\n", std::string(100000, 'x')}) {
    WriteText(text);
    EXPECT_THAT(Complaint(), HasSubstr("is no key of a job")) << text.substr(0, 80);
  }
  fs::remove(path());
  fs::create_directory(path());
  EXPECT_THAT(Complaint(), HasSubstr("is no regular file"));
}

}  // namespace
}  // namespace poseidon
