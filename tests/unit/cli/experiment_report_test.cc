// Which Python makes an experiment's report.
#include "cli/output/experiment_report.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <sstream>

#include "core/files/regular_file.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

class ExperimentReportTest : public testing::Test {
 protected:
  // PATH has that directory alone.
  ExperimentReportTest() { setenv("PATH", directory_.path().c_str(), 1); }
  ~ExperimentReportTest() override { setenv("PATH", path_.c_str(), 1); }

  // A program of this name that writes down that it was called.
  std::string WritePython(const std::string& name) const {
    std::string path = directory_.Write(
        name, "#!/bin/sh\necho " + name + " \"$2 $3\" > '" + directory_.Path("called") + "'\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    return path;
  }
  bool Make(const std::string& python) {
    return MakeReport(directory_.path(), {"--points=3"}, interruption_, out_, python);
  }
  std::string Called() const {
    return ReadRegularFile(directory_.Path("called"), ExitCode::kFailure);
  }

  const std::string path_ = getenv("PATH");
  const TemporaryDirectory directory_;
  Interruption interruption_;
  std::ostringstream out_;
};

TEST_F(ExperimentReportTest, WithoutDebiansPythonItIsLookedForInThePath) {
  const std::string arguments = " " + directory_.path() + " --points=3\n";
  const std::string debians = WritePython("debians");
  WritePython("python3");
  EXPECT_TRUE(Make(debians)) << out_.str();
  EXPECT_EQ(Called(), "debians" + arguments);
  EXPECT_TRUE(Make(directory_.Path("none"))) << out_.str();
  EXPECT_EQ(Called(), "python3" + arguments);
}

TEST_F(ExperimentReportTest, WithoutAnyPythonThatIsSaid) {
  EXPECT_FALSE(Make(directory_.Path("none")));
  EXPECT_EQ(out_.str(), "no report: there is no program python3; install it\n");
}

}  // namespace
}  // namespace poseidon
