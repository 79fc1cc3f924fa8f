#include "core/named_file.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;

// A repository with a job config, and another directory to work in.
class NamedFileTest : public ::testing::Test {
 protected:
  NamedFileTest() : before_(fs::current_path()) {
    fs::create_directories(elsewhere());
    fs::current_path(elsewhere());
  }
  ~NamedFileTest() override { fs::current_path(before_); }

  std::string elsewhere() const { return directory_.Path("elsewhere"); }

  const fs::path before_;
  TemporaryDirectory directory_;
  const std::string config_ = directory_.Write("repository/configs/job.prototxt", "");
};

TEST_F(NamedFileTest, IsLookedForInTheWorkingDirectoryThenBesideThenAbove) {
  EXPECT_EQ(FindNamedFile(config_, "configs/solver"), std::nullopt);
  const std::string far = directory_.Write("configs/solver", "");
  EXPECT_EQ(FindNamedFile(config_, "configs/solver"), far);
  const std::string root = directory_.Write("repository/configs/solver", "");
  EXPECT_EQ(FindNamedFile(config_, "configs/solver"), root);
  const std::string beside = directory_.Write("repository/configs/configs/solver", "");
  EXPECT_EQ(FindNamedFile(config_, "configs/solver"), beside);
  directory_.Write("elsewhere/configs/solver", "");
  EXPECT_EQ(FindNamedFile(config_, "configs/solver"), "configs/solver");
}

TEST_F(NamedFileTest, ConfigMayBeGivenByARelativePath) {
  directory_.Write("repository/configs/models/solver", "");
  const auto found = FindNamedFile("../repository/configs/job.prototxt", "configs/models/solver");
  ASSERT_TRUE(found);
  EXPECT_TRUE(fs::equivalent(*found, directory_.Path("repository/configs/models/solver")));
  EXPECT_EQ(FindNamedFile("job.prototxt", "no/such/file"), std::nullopt);
}

TEST_F(NamedFileTest, AbsolutePathsAreWhereTheyAre) {
  EXPECT_EQ(FindNamedFile(config_, config_), config_);
  EXPECT_EQ(FindNamedFile(config_, "/no/such/file"), std::nullopt);
  EXPECT_EQ(FindNamedFile(config_, ""), std::nullopt);
}

}  // namespace
}  // namespace poseidon
