#include "caffe_adapter/files/solver_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/files/found_snapshot.h"
#include "caffe_adapter/files/hdf5_file.h"
#include "core/arithmetic/update_rule.h"
#include "core/error.h"
#include "proto/text_format.h"
#include "proto/update_rule_message.h"
#include "tests/unit/failing_call.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Layers "a" (2 x 3 and 2), "still" (not trained) and "b" (1 x 3).
NetDescription Describe() {
  caffe::NetParameter net;
  ParseText(
      "layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 3 } } }"
      " layer { name: 'a' type: 'InnerProduct' bottom: 'x' top: 'a'"
      " inner_product_param { num_output: 2 } }"
      " layer { name: 'still' type: 'InnerProduct' bottom: 'x' top: 's' param { lr_mult: 0 }"
      " inner_product_param { num_output: 1 bias_term: false } }"
      " layer { name: 'b' type: 'InnerProduct' bottom: 'x' top: 'b'"
      " inner_product_param { num_output: 1 bias_term: false } }",
      "net", net);
  return DescribeNet(net, caffe::TRAIN);
}

ModelSpec Model(const NetDescription& net, const std::string& type, bool deferred) {
  caffe::SolverParameter solver;
  solver.set_type(type);
  solver.set_lr_policy("fixed");
  ModelSpec model = ToModelSpec(net, solver);
  model.mutable_update_rule()->set_deferred(deferred);
  return model;
}

TEST(SolverStateTest, HistoryIsInCaffesOrder) {
  const NetDescription net = Describe();
  const ModelSpec model = Model(net, "Adam", true);
  // 11 parameters with two numbers each and a third one that is no state.
  std::vector<float> state(11 * 3);
  std::iota(state.begin(), state.end(), 0.0F);
  const std::vector<HistoryBlob> history = ToHistory(net, model, state);
  ASSERT_EQ(history.size(), 8U);
  EXPECT_EQ(history[0].shape, (Shape{2, 3}));
  EXPECT_THAT(history[0].values, ElementsAre(0, 3, 6, 9, 12, 15));
  EXPECT_THAT(history[1].values, ElementsAre(18, 21));
  EXPECT_THAT(history[2].values, ElementsAre(0, 0, 0));
  EXPECT_THAT(history[3].values, ElementsAre(24, 27, 30));
  EXPECT_THAT(history[4].values, ElementsAre(1, 4, 7, 10, 13, 16));
  EXPECT_THAT(history[7].values, ElementsAre(25, 28, 31));

  std::vector<float> back = FromHistory("f", net, model, history);
  for (size_t i = 2; i < state.size(); i += 3) state[i] = 0;
  EXPECT_EQ(back, state);
}

// A snapshot of the net in a directory of its own, whose solver state says that the model is at
// `learned_net`.
FoundSnapshot WriteSnapshot(const TemporaryDirectory& directory, const std::string& learned_net) {
  const NetDescription net = Describe();
  WriteCaffemodel(directory.Path("x_iter_7.caffemodel"), net,
                  {{}, {{1, 2, 3, 4, 5, 6}, {7, 8}}, {{9, 10, 11}}, {{12, 13, 14}}});
  const std::string path = directory.Path("x_iter_7.solverstate");
  WriteSolverState(path, {.iteration = 7, .learned_net = learned_net, .history = {}});
  return ReadSnapshot(path);
}

// What is left of a file that was cut off between two layers can be read without an error.
TEST(SnapshotTest, AModelThatWasCutOffBetweenTwoLayersIsRefused) {
  const TemporaryDirectory directory;
  const FoundSnapshot found = WriteSnapshot(directory, directory.Path("x_iter_7.caffemodel"));
  const NetDescription net = Describe();
  NetValues values = {{}, {{}, {}}, {{}}, {{}}};
  ReadSnapshotValues(found, net, values);
  EXPECT_THAT(values[3][0], ElementsAre(12, 13, 14));

  caffe::NetParameter model;
  ReadBinaryFile(found.model, model);
  const std::string whole = model.SerializeAsString();
  model.mutable_layer()->RemoveLast();
  const std::string cut = model.SerializeAsString();
  ASSERT_EQ(whole.substr(0, cut.size()), cut);
  std::filesystem::resize_file(found.model, cut.size());
  try {
    ReadSnapshotValues(found, net, values);
    ADD_FAILURE() << "taken for whole";
  } catch (const DataError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(found.model), HasSubstr("lacks the values of b"),
                                    HasSubstr("cut off")));
  }
}

// Whoever copies a snapshot copies both files; the place where it was written may hold another
// training's since.
TEST(SnapshotTest, TheModelBesideTheSolverStateIsTakenFirst) {
  const TemporaryDirectory copied;
  const TemporaryDirectory original;
  EXPECT_EQ(WriteSnapshot(copied, "gone/x_iter_7.caffemodel").model,
            copied.Path("x_iter_7.caffemodel"));
  WriteSnapshot(original, "x_iter_7.caffemodel");
  const std::string recorded = original.Path("x_iter_7.caffemodel");
  const FoundSnapshot found = WriteSnapshot(copied, recorded);
  EXPECT_EQ(found.model, copied.Path("x_iter_7.caffemodel"));
  std::filesystem::remove(found.model);
  EXPECT_EQ(ReadSnapshot(found.path).model, recorded);
  std::filesystem::remove(recorded);
  EXPECT_THROW(ReadSnapshot(found.path), DataError);
}

// What that type of solver keeps for the net.
std::vector<HistoryBlob> HistoryOf(const std::string& type) {
  const NetDescription net = Describe();
  const ModelSpec model = Model(net, type, false);
  return ToHistory(
      net, model,
      std::vector<float>(11 * OptimizerStatePerParameter(ToUpdateRule(model.update_rule()))));
}

// A whole snapshot in the format of `extension`.
void WriteWhole(const std::string& prefix, int64_t iteration, const std::string& extension) {
  const std::string name = prefix + "_iter_" + std::to_string(iteration);
  const std::string model = name + ".caffemodel" + extension;
  WriteCaffemodel(model, Describe(),
                  {{}, {{1, 2, 3, 4, 5, 6}, {7, 8}}, {{9, 10, 11}}, {{1, 2, 3}}});
  WriteSolverState(name + ".solverstate" + extension,
                   {.iteration = iteration, .learned_net = model, .history = HistoryOf("SGD")});
}

TEST(SnapshotTest, TheLatestIsTheNewestWhoseModelIsWhole) {
  for (const std::string extension : {"", ".h5"}) {
    if (!extension.empty() && !HasHdf5()) continue;
    const TemporaryDirectory directory;
    const std::string prefix = directory.Path("x");
    EXPECT_EQ(FindLatestSnapshot(prefix), std::nullopt);
    WriteWhole(prefix, 7, extension);
    WriteWhole(prefix, 10, extension);
    EXPECT_EQ(FindLatestSnapshot(prefix), prefix + "_iter_10.solverstate" + extension);
    const std::string newest = prefix + "_iter_10.caffemodel" + extension;
    std::filesystem::resize_file(newest, std::filesystem::file_size(newest) / 2);
    EXPECT_EQ(FindLatestSnapshot(prefix), prefix + "_iter_7.solverstate" + extension);
  }
}

// Cuts the message in the file off behind the first `kept` parts of that field.
void CutBehind(const std::string& path, google::protobuf::Message&& message,
               const std::string& field, int kept) {
  ReadBinaryFile(path, message);
  const std::string whole = message.SerializeAsString();
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const auto& descriptor = *message.GetDescriptor()->FindFieldByName(field);
  while (reflection.FieldSize(message, &descriptor) > kept)
    reflection.RemoveLast(&message, &descriptor);
  // What has a higher number stands behind.
  if (field == "history")
    reflection.ClearField(&message, message.GetDescriptor()->FindFieldByName("current_step"));
  const std::string cut = message.SerializeAsString();
  ASSERT_EQ(whole.substr(0, cut.size()), cut);
  ASSERT_LT(cut.size(), whole.size());
  std::filesystem::resize_file(path, cut.size());
}

// What is left can be read without an error, as an empty file can.
TEST(SnapshotTest, OneThatWasCutOffBetweenTwoPartsIsPassedOver) {
  for (const std::string part : {"empty", "layers", "history", "history of the first layer"}) {
    const TemporaryDirectory directory;
    const std::string prefix = directory.Path("x");
    WriteWhole(prefix, 7, "");
    WriteWhole(prefix, 10, "");
    const std::string model = prefix + "_iter_10.caffemodel";
    const std::string state = prefix + "_iter_10.solverstate";
    if (part == "empty") std::filesystem::resize_file(model, 0);
    if (part == "layers") CutBehind(model, caffe::NetParameter(), "layer", 2);
    if (part == "history") CutBehind(state, caffe::SolverState(), "history", 0);
    if (part.ends_with("layer")) CutBehind(state, caffe::SolverState(), "history", 2);
    EXPECT_EQ(FindLatestSnapshot(prefix), prefix + "_iter_7.solverstate") << part;
  }
}

// Layers that share a blob have it each in the model, and once in the history.
TEST(SnapshotTest, OneOfLayersThatShareIsWhole) {
  const TemporaryDirectory directory;
  const std::string prefix = directory.Path("x");
  WriteWhole(prefix, 7, "");
  const std::string path = prefix + "_iter_7.caffemodel";
  caffe::NetParameter model;
  ReadBinaryFile(path, model);
  caffe::LayerParameter& layer = *model.mutable_layer(3);
  layer.add_param()->set_name("shared");
  caffe::LayerParameter& user = *model.add_layer();
  user = layer;
  user.set_name("user");
  WriteBinaryFile(path, model);
  EXPECT_EQ(FindLatestSnapshot(prefix), prefix + "_iter_7.solverstate");
}

TEST(SnapshotTest, TypesOfSolversKeepMoreOrLess) {
  const TemporaryDirectory directory;
  const std::string prefix = directory.Path("x");
  WriteWhole(prefix, 7, "");
  WriteSolverState(
      prefix + "_iter_7.solverstate",
      {.iteration = 7, .learned_net = prefix + "_iter_7.caffemodel", .history = HistoryOf("Adam")});
  EXPECT_EQ(FindLatestSnapshot(prefix), prefix + "_iter_7.solverstate");
}

// A training that has begun anew with the prefix has not come so far as the one before.
TEST(SnapshotTest, ThatOneOfALowerIterationWasWrittenLaterIsSaid) {
  const TemporaryDirectory directory;
  const std::string prefix = directory.Path("x");
  for (const int iteration : {5, 7, 10}) WriteWhole(prefix, iteration, "");
  const std::string chosen = prefix + "_iter_10.solverstate";
  const auto now = std::filesystem::last_write_time(chosen);
  const auto write = [&](int iteration, int hours_ago) {
    std::filesystem::last_write_time(prefix + "_iter_" + std::to_string(iteration) + ".solverstate",
                                     now - std::chrono::hours(hours_ago));
  };
  write(5, 3);
  write(7, 2);
  EXPECT_EQ(WhyNotTheNewest(prefix, chosen), "");
  write(7, 0);
  EXPECT_EQ(WhyNotTheNewest(prefix, chosen), "") << "in the same moment";
  write(10, 2);
  write(5, 1);
  EXPECT_THAT(WhyNotTheNewest(prefix, chosen),
              AllOf(HasSubstr(chosen + " is of the highest iteration, but " + prefix +
                              "_iter_7.solverstate was written after it"),
                    HasSubstr("--snapshot=" + prefix + "_iter_7.solverstate")));
  EXPECT_EQ(WhyNotTheNewest(prefix, prefix + "_iter_5.solverstate"), "")
      << "none is of a lower one";
}

TEST(SnapshotTest, WhatLiesInTheWayOfAFreshStartIsSaid) {
  const TemporaryDirectory directory;
  const std::string prefix = directory.Path("x");
  EXPECT_EQ(WhatLiesInTheWay(prefix), "");
  EXPECT_EQ(WhatLiesInTheWay(directory.Path("none/x")), "");
  WriteWhole(prefix, 7, "");
  WriteWhole(prefix, 10, "");
  EXPECT_THAT(WhatLiesInTheWay(prefix), HasSubstr(prefix + "_iter_10.solverstate"));
}

// That the latest snapshot can't be told just now. Whoever goes on would else go back behind it.
void ExpectCanNotTell(const std::string& prefix, const std::string& path) {
  try {
    const std::optional<std::string> found = FindLatestSnapshot(prefix);
    FAIL() << "it was passed over for " << found.value_or("none");
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kFailure) << error.what();
    EXPECT_THAT(error.what(), AllOf(HasSubstr("can't read " + path + ": "),
                                    HasSubstr("; this may pass, so try again")));
  }
}

TEST(SnapshotTest, OneThatCanNotBeReadForAMomentIsNotPassedOver) {
  const TemporaryDirectory directory;
  const std::string prefix = directory.Path("x");
  WriteWhole(prefix, 7, "");
  // Its first byte can't be read, as on a disk that fails.
  const std::string newest = prefix + "_iter_10.solverstate";
  std::filesystem::create_symlink("/proc/self/mem", newest);
  ExpectCanNotTell(prefix, newest);
}

// Whatever the format: HDF5's library calls what it can't read truncated. The first bytes are
// there.
TEST(SnapshotDeathTest, OneThatCanNotBeReadFurtherOnForAMomentIsNotPassedOver) {
  if (!HasHdf5()) GTEST_SKIP() << "this build has no HDF5";
  const TemporaryDirectory directory;
  const std::string prefix = directory.Path("x");
  WriteWhole(prefix, 7, ".h5");
  WriteWhole(prefix, 10, ".h5");
  const auto find = [&prefix] {
    constexpr uint32_t kSuperblock = 600;  // the library reads it in order to open the file
    BreakCall({.number = SYS_pread64, .error = EIO, .argument = 3, .least = kSuperblock});
    ExpectCanNotTell(prefix, prefix + "_iter_10.solverstate.h5");
    _exit(testing::Test::HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(find(), testing::ExitedWithCode(0), "");
}

// A link to itself, which root can't follow, either, is for a file server that does not answer.
TEST(SnapshotTest, ADirectoryThatCanNotBeReadForAMomentIsNotOneWithoutSnapshots) {
  const TemporaryDirectory directory;
  const std::string away = directory.Path("away");
  std::filesystem::create_symlink(away, away);
  ExpectCanNotTell(away + "/x", away);
  EXPECT_THROW(SnapshotFiles(away + "/x"), Error);
}

TEST(SnapshotTest, WhereNoDirectoryIsThereIsNoSnapshot) {
  const TemporaryDirectory directory;
  EXPECT_EQ(FindLatestSnapshot(directory.Path("none/x")), std::nullopt);
  std::ofstream(directory.Path("file")) << "1";
  EXPECT_EQ(FindLatestSnapshot(directory.Path("file/x")), std::nullopt);
}

TEST(SnapshotTest, OneWhoseModelCanNotBeLookedAtForAMomentIsNotPassedOver) {
  const TemporaryDirectory directory;
  const std::string prefix = directory.Path("x");
  WriteWhole(prefix, 7, "");
  WriteWhole(prefix, 10, "");
  const std::string model = prefix + "_iter_10.caffemodel";
  std::filesystem::remove(model);
  std::filesystem::create_symlink(model, model);
  ExpectCanNotTell(prefix, model);
}

// A path that is too long leads nowhere, now and later: the solverstate is corrupt.
TEST(SnapshotTest, OneThatNamesNoFileIsPassedOver) {
  const TemporaryDirectory directory;
  const std::string prefix = directory.Path("x");
  WriteWhole(prefix, 7, "");
  WriteSolverState(prefix + "_iter_10.solverstate",
                   {.iteration = 10, .learned_net = std::string(300, 'x'), .history = {}});
  EXPECT_EQ(FindLatestSnapshot(prefix), prefix + "_iter_7.solverstate");
}

// Of a snapshot that was copied without its model, which is where only somebody else may look.
TEST(SnapshotTest, OneWhoseModelIsInADirectoryOfOthersIsPassedOver) {
  if (geteuid() == 0) GTEST_SKIP() << "root may look anywhere";
  const TemporaryDirectory directory;
  const std::string prefix = directory.Path("x");
  WriteWhole(prefix, 7, "");
  const std::string others = directory.Path("others");
  std::filesystem::create_directory(others);
  WriteSolverState(prefix + "_iter_10.solverstate",
                   {.iteration = 10, .learned_net = others + "/x.caffemodel", .history = {}});
  std::filesystem::permissions(others, std::filesystem::perms::none);
  EXPECT_EQ(FindLatestSnapshot(prefix), prefix + "_iter_7.solverstate");
  std::filesystem::permissions(others, std::filesystem::perms::owner_all);
}

// An earlier job's, which can't be told from the job's own while it can't be looked at.
TEST(SnapshotTest, WhetherOneIsEarlierIsNotGuessed) {
  const TemporaryDirectory directory;
  const std::string prefix = directory.Path("x");
  WriteWhole(prefix, 7, "");
  const std::string path = prefix + "_iter_7.solverstate";
  const SnapshotFiles earlier(prefix);
  std::filesystem::remove(path);
  EXPECT_FALSE(earlier.Has(path));
  std::filesystem::create_symlink(path, path);
  EXPECT_THROW(earlier.Has(path), Error);
}

// An earlier job's may have come further.
TEST(SnapshotTest, WhatWasThereBeforeAJobIsPassedOver) {
  const TemporaryDirectory directory;
  const std::string prefix = directory.Path("x");
  WriteWhole(prefix, 200, "");
  const std::string old = prefix + "_iter_200.solverstate";
  const SnapshotFiles earlier(prefix);
  EXPECT_EQ(FindLatestSnapshot(prefix, earlier), std::nullopt);
  WriteWhole(prefix, 20, "");
  WriteWhole(prefix, 40, "");
  const std::string own = prefix + "_iter_40.solverstate";
  EXPECT_EQ(FindLatestSnapshot(prefix, earlier), own);
  // As when the clock has been set back.
  const auto before = std::filesystem::last_write_time(old) - std::chrono::hours(1);
  std::filesystem::last_write_time(own, before);
  EXPECT_EQ(FindLatestSnapshot(prefix, earlier), own);
  EXPECT_EQ(FindLatestSnapshot(prefix), old);
  // The job comes so far, too, and writes its own in the place of the earlier job's.
  WriteWhole(prefix, 200, "");
  std::filesystem::last_write_time(old, before);
  EXPECT_EQ(FindLatestSnapshot(prefix, earlier), old);
}

// Of the two formats, in whatever order the directory has them.
TEST(SnapshotTest, AnEarlierOneOfAnIterationDoesNotHideTheJobsOwn) {
  if (!HasHdf5()) GTEST_SKIP() << "this build has no HDF5";
  for (const bool hdf5 : {false, true}) {
    const TemporaryDirectory directory;
    const std::string prefix = directory.Path("x");
    WriteWhole(prefix, 20, hdf5 ? "" : ".h5");
    const SnapshotFiles earlier(prefix);
    WriteWhole(prefix, 20, hdf5 ? ".h5" : "");
    EXPECT_EQ(FindLatestSnapshot(prefix, earlier),
              prefix + "_iter_20.solverstate" + (hdf5 ? ".h5" : ""));
  }
}

class SolverStateFormatTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (IsHdf5Path(GetParam()) && !HasHdf5()) GTEST_SKIP() << "this build has no HDF5";
  }
};

TEST_P(SolverStateFormatTest, WhatIsWrittenIsRead) {
  const TemporaryDirectory directory;
  const std::string path = directory.Path(GetParam());
  SolverState written;
  written.iteration = 1234567;
  written.learned_net = "out/x_iter_7.caffemodel";
  written.current_step = 2;
  written.history = {{{2, 3}, {1, 2, 3, 4, 5, 6}}, {{2}, {-1, 0.5F}}, {{1, 1}, {7}}};
  WriteSolverState(path, written);
  const SolverState read = ReadSolverState(path);
  EXPECT_EQ(read.iteration, written.iteration);
  EXPECT_EQ(read.learned_net, written.learned_net);
  EXPECT_EQ(read.current_step, 2);
  ASSERT_EQ(read.history.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read.history[i].shape, written.history[i].shape);
    EXPECT_EQ(read.history[i].values, written.history[i].values);
  }
  std::filesystem::resize_file(path, std::filesystem::file_size(path) / 2);
  EXPECT_THROW(ReadSolverState(path), DataError);
  EXPECT_THROW(ReadSolverState(directory.Path("none.solverstate")), DataError);
}

TEST_P(SolverStateFormatTest, AModelIsWrittenAndRead) {
  const TemporaryDirectory directory;
  const std::string path = directory.Path(GetParam());
  const NetDescription net = Describe();
  const NetValues written = {{}, {{1, 2, 3, 4, 5, 6}, {7, 8}}, {{9, 10, 11}}, {{12, 13, 14}}};
  WriteCaffemodel(path, net, written);
  NetValues read = {{}, {{}, {}}, {{}}, {{}}};
  ReadCaffemodel(path, net, read);
  EXPECT_EQ(read, written);
}

INSTANTIATE_TEST_SUITE_P(Formats, SolverStateFormatTest,
                         ::testing::Values("x.solverstate", "x.solverstate.h5"));

TEST(SolverStateTest, WhatDoesNotFitIsRefused) {
  const NetDescription net = Describe();
  const ModelSpec one = Model(net, "SGD", false);
  const ModelSpec two = Model(net, "Adam", false);
  const auto refusal = [&](const std::vector<HistoryBlob>& history,
                           const ModelSpec& model) -> std::string {
    try {
      FromHistory("f.solverstate", net, model, history);
      return "";
    } catch (const DataError& error) {
      return error.what();
    }
  };
  const std::vector<HistoryBlob> sgd = ToHistory(net, one, std::vector<float>(11));
  EXPECT_EQ(refusal(sgd, one), "");
  EXPECT_THAT(refusal(sgd, two), AllOf(HasSubstr("f.solverstate: has 4 blobs of history"),
                                       HasSubstr("another type of solver")));
  std::vector<HistoryBlob> cut = sgd;
  cut.pop_back();
  EXPECT_THAT(refusal(cut, one), HasSubstr("f.solverstate: has 3 of 4 blobs of history, and the "
                                           "first that it lacks is of layer \"b\", blob 0: it was "
                                           "cut off"));
  std::vector<HistoryBlob> other = sgd;
  other[3] = {{5}, std::vector<float>(5)};
  EXPECT_THAT(refusal(other, one), HasSubstr("layer \"b\", blob 0 is 5; the net's blob is 1 x 3"));
}

}  // namespace
}  // namespace poseidon
