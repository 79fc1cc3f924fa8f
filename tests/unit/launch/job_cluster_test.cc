#include "launch/job_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "launch/handed_key.h"
#include "tests/unit/temporary_directory.h"
#include "transport/security/job_key.h"

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

TEST_F(BlasThreadsTest, AreTheUsersWhoHasSaidSo) {
  for (const char* name : kNames) {
    setenv(name, "8", 1);
    EXPECT_EQ(BlasThreads(1), std::nullopt) << name;
    unsetenv(name);
  }
}

// What a program on a host finds, whose environment says `environment`, words for `env`.
std::string FoundOnHost(const std::string& environment) {
  std::string command = "env -i " + environment;
  for (const std::string& word : HostProgramStart("libm.so.6", 3)) {
    command += " " + ShellQuoted(word);
  }
  command += " /bin/sh -c 'echo $OPENBLAS_NUM_THREADS,$OMP_NUM_THREADS,$LD_PRELOAD,$1' sh 'a \"b'";
  FILE* const output = popen(command.c_str(), "r");
  char line[256] = "";
  EXPECT_NE(fgets(line, sizeof(line), output), nullptr) << command;
  EXPECT_EQ(pclose(output), 0) << command;
  return line;
}

TEST_F(BlasThreadsTest, OnAHostAreThoseOfItsOwnEnvironment) {
  setenv("OMP_NUM_THREADS", "8", 1);  // of this machine, which is none of the host's
  EXPECT_EQ(FoundOnHost(""), "3,,libm.so.6,a \"b\n");
  EXPECT_EQ(FoundOnHost("OMP_NUM_THREADS=5"), ",5,libm.so.6,a \"b\n");
  EXPECT_EQ(FoundOnHost("GOTO_NUM_THREADS=5"), ",,libm.so.6,a \"b\n");
  EXPECT_EQ(FoundOnHost("OPENBLAS_NUM_THREADS=5"), "5,,libm.so.6,a \"b\n");
}

// The daemons could not read the config that names it.
TEST(ResolveFiles, ADirectoryWhoseNameIsNoUtf8IsRefused) {
  const TemporaryDirectory directory;
  directory.Write("caf\xe9/solver.prototxt", "");
  JobConfig config;
  config.path = directory.Path("caf\xe9/job.prototxt");
  config.job.mutable_training()->set_solver("solver.prototxt");
  EXPECT_EQ(MessageOf<ConfigError>([&] { ResolveFiles(config); }),
            directory.Path("caf\\xe9/solver.prototxt") +
                " is no UTF-8, and OUT/job.prototxt, which has to name it, is; rename the file or "
                "its directory");
}

// OUT/job.prototxt is for whoever the umask says.
TEST(HandedKey, OneInTheConfigGoesToAFileOfItsOwnersAlone) {
  const TemporaryDirectory directory;
  const JobKey key = JobKey::Make();
  Job job;
  job.mutable_security()->set_key(key.ToText());
  job.mutable_security()->add_allow("10.0.0.0/8");
  CheckKeyPath(job, directory.path());
  EXPECT_NE(MessageOf<ConfigError>([&] { CheckKeyPath(job, "caf\xe9"); }), "");
  MoveKeyToFile(job, directory.path(), /*alone=*/false);
  EXPECT_FALSE(job.security().has_key());
  EXPECT_EQ(job.security().key_file(), directory.Path("config.key"));
  EXPECT_EQ(job.security().allow_size(), 1);
  EXPECT_EQ(JobKey::Read(directory.Path("config.key")).secret_key, key.secret_key);  // 0600
  MoveKeyToFile(job, directory.Path("elsewhere"), /*alone=*/false);
  EXPECT_EQ(job.security().key_file(), directory.Path("config.key"));
}

// A job that waits in Slurm's queue reads it when it starts.
TEST(HandedKey, OneThatAnotherJobMayUseIsReplacedOnlyByWhoIsAlone) {
  const TemporaryDirectory directory;
  const std::string path = directory.Path("config.key");
  const auto move = [&directory](const JobKey& key, bool alone) {
    Job job;
    job.mutable_security()->set_key(key.ToText());
    MoveKeyToFile(job, directory.path(), alone);
  };
  const JobKey first = JobKey::Make();
  const JobKey second = JobKey::Make();
  move(first, /*alone=*/false);
  move(first, /*alone=*/false);
  EXPECT_EQ(MessageOf<Error>([&] { move(second, /*alone=*/false); }),
            path +
                " is there already, and a job may still use its key; remove it, or choose another "
                "directory");
  EXPECT_EQ(JobKey::Read(path).secret_key, first.secret_key);
  move(second, /*alone=*/true);
  EXPECT_EQ(JobKey::Read(path).secret_key, second.secret_key);
}

TEST(HandedKey, WhatTheUserHasMadeThereStays) {
  const TemporaryDirectory directory;
  const JobKey own = JobKey::Make();
  own.Write(directory.Path("job.key"));
  for (int run = 0; run < 2; ++run) {
    Job job;
    MakeKeyIfOpen(job, directory.path());
    EXPECT_EQ(job.security().key_file(), directory.Path("run.key"));
  }
  EXPECT_EQ(JobKey::Read(directory.Path("job.key")).secret_key, own.secret_key);
}

TEST(HostProgramStart, LoadsTheLibraryBehindThoseOfTheHostsEnvironment) {
  EXPECT_EQ(FoundOnHost("LD_PRELOAD=libdl.so.2"), "3,,libdl.so.2:libm.so.6,a \"b\n");
}

}  // namespace
}  // namespace poseidon
