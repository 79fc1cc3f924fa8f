// What is read of a job's output directory, however long the job has been.
#include "diagnosis/job_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/files/regular_file.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::IsEmpty;

// A million iterations have a longer summary, and a log has no bound at all.
TEST(JobFiles, OfALongJobAreRead) {
  const std::string longer(kMostTextBytes, ' ');
  const TemporaryDirectory directory;
  directory.Write("summary.json", R"({"job": "long", "exit_code": 3)" + longer + "}");
  directory.Write("logs/worker-1.log", longer + "\nfirst\n\n2\n3\n4\n5\nlast");
  const JobFiles job = ReadJobFiles(directory.path());
  EXPECT_THAT(job.unreadable, IsEmpty());
  ASSERT_TRUE(job.summary);
  EXPECT_EQ(job.summary->exit_code, 3);
  EXPECT_EQ(job.logs.at("worker-1"), "2\n3\n4\n5\nlast\n");
}

}  // namespace
}  // namespace poseidon
