// What a user is told to do about data that can't be read.
#include "cli/input/data_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Of a net that reads an LMDB; what it reads is as absolute as the test's directory.
class DataCommandTest : public testing::Test {
 protected:
  DataCommandTest() {
    caffe::LayerParameter& layer = *net_.net.add_layer();
    layer.set_type("Data");
    layer.mutable_data_param()->set_source(directory_.Path("digits/train_lmdb"));
    layer.mutable_data_param()->set_backend(caffe::DataParameter::LMDB);
    SetOut("digits");
  }

  void SetOut(const std::string& out) {
    config_.job.mutable_training()->set_data_command("poseidon convert csv --replace --out=" +
                                                     directory_.Path(out));
  }

  TemporaryDirectory directory_;
  SolverNet net_;
  JobConfig config_;
};

TEST_F(DataCommandTest, MakesADatabaseThatIsNotThere) {
  const std::string made = "convert csv --replace --out=" + directory_.Path("digits");
  for (const bool has_directory : {false, true}) {
    if (has_directory) std::filesystem::create_directories(directory_.Path("digits/train_lmdb"));
    const std::string text = HowToMakeData(config_, net_);
    EXPECT_THAT(text, StartsWith("; in the working directory, "));
    EXPECT_THAT(text, HasSubstr(", this makes it: "));
    EXPECT_THAT(text, HasSubstr(made)) << has_directory;
  }
  config_.job.mutable_training()->clear_data_command();
  EXPECT_THAT(HowToMakeData(config_, net_), HasSubstr("poseidon convert --help"));
}

TEST_F(DataCommandTest, IsNoHelpWithADatabaseThatIsThere) {
  directory_.Write("digits/train_lmdb/data.mdb", "damaged");
  EXPECT_THAT(HowToMakeData(config_, net_), IsEmpty());
  config_.job.mutable_training()->clear_data_command();
  EXPECT_THAT(HowToMakeData(config_, net_), IsEmpty());
}

// As one in a directory that may not be searched, which the superuser may.
TEST_F(DataCommandTest, IsNoHelpWithADatabaseThatCantBeLookedAt) {
  std::filesystem::create_symlink("digits", directory_.Path("digits"));
  EXPECT_THAT(HowToMakeData(config_, net_), IsEmpty());
}

TEST_F(DataCommandTest, IsNoHelpWithADatabaseThatItDoesNotMake) {
  for (const char* other : {"other", "digits/train", "digits/train_lmdb/more"}) {
    SetOut(other);
    EXPECT_THAT(HowToMakeData(config_, net_), IsEmpty()) << other;
  }
  for (const char* own : {"digits/", "digits/train_lmdb", "other/../digits"}) {
    SetOut(own);
    EXPECT_THAT(HowToMakeData(config_, net_), HasSubstr("this makes it")) << own;
  }
}

TEST_F(DataCommandTest, MayMakeSeveralDatabasesOrOneThatAShellNames) {
  Training& training = *config_.job.mutable_training();
  const std::string here = directory_.Path("digits/train_lmdb");
  for (const std::string& command :
       {"poseidon convert imageset --out=other && poseidon convert imageset --out=" + here,
        "poseidon convert imageset --out='" + here + "'",
        std::string("poseidon convert imageset --out=$HOME/digits")}) {
    training.set_data_command(command);
    EXPECT_THAT(HowToMakeData(config_, net_), HasSubstr("this makes it")) << command;
  }
}

TEST_F(DataCommandTest, IsNoHelpWithALevelDb) {
  net_.net.mutable_layer(0)->mutable_data_param()->set_backend(caffe::DataParameter::LEVELDB);
  EXPECT_THAT(HowToMakeData(config_, net_), IsEmpty());
}

// A layer of the test phase says nothing of what training lacks.
TEST_F(DataCommandTest, IsOfTheLayersInTheNetsPhase) {
  net_.net.mutable_layer(0)->add_include()->set_phase(caffe::TEST);
  EXPECT_THAT(HowToMakeData(config_, net_), IsEmpty());
  net_.phase = caffe::TEST;
  EXPECT_THAT(HowToMakeData(config_, net_), HasSubstr("this makes it"));
}

}  // namespace
}  // namespace poseidon
