// Whether snapshots can be written, before the training, and what is there when that fails.
#include "worker/snapshots.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "caffe_adapter/files/hdf5_file.h"
#include "caffe_adapter/net/net.h"
#include "core/error.h"
#include "core/files/regular_file.h"
#include "tests/unit/temporary_directory.h"
#include "worker/engine/replay_engine.h"
#include "worker/recipe.h"

namespace poseidon {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

// A layer that learns, and one that does not.
NetDescription NetWith(int64_t learned, int64_t frozen = 0) {
  NetDescription net;
  net.layers.resize(2);
  net.layers[0].parameters = {{.shape = {learned}, .filler = {}}};
  net.layers[1].parameters = {{.shape = {frozen}, .filler = {}, .lr_mult = 0}};
  return net;
}

void CheckWritable(Snapshots& snapshots, const NetDescription& net = NetWith(1),
                   const std::string& solver_type = "SGD") {
  caffe::SolverParameter solver;
  solver.set_type(solver_type);
  solver.set_lr_policy("fixed");
  snapshots.CheckWritable(net, ToModelSpec(net, solver));
}

std::string ErrorOf(const SnapshotOptions& options) {
  Snapshots snapshots(options);
  return MessageOf<Error>([&] { CheckWritable(snapshots); });
}

TEST(SnapshotsTest, APlaceThatCanBeWrittenToIsMadeAndLeftEmpty) {
  const TemporaryDirectory directory;
  EXPECT_EQ(ErrorOf({.prefix = directory.Path("new/x"), .interval = 7}), "");
  EXPECT_TRUE(std::filesystem::is_empty(directory.Path("new")));
}

TEST(SnapshotsTest, OneJobAtATimeWritesThere) {
  const TemporaryDirectory directory;
  const auto options = [&](const std::string& owner) {
    return SnapshotOptions{.prefix = directory.Path("x"), .interval = 7, .owner = owner};
  };
  {
    Snapshots first(options("the job \"a\""));
    CheckWritable(first);
    CheckWritable(first);
    EXPECT_THAT(ErrorOf(options("the job \"ab\"")),
                MatchesRegex("snapshot_prefix \"" + directory.Path("x") +
                             "\" is in use by the job \"a\", process " + std::to_string(getpid()) +
                             " on .*; wait for its end, or give another prefix"));
    EXPECT_EQ(ErrorOf({.prefix = directory.Path("xy"), .owner = "the job \"ab\""}), "");
    EXPECT_EQ(ErrorOf(options("the job \"a\"")), "") << "another worker of the same job";
  }
  EXPECT_EQ(ErrorOf(options("the job \"ab\"")), "");
}

// Both may have been started from it on two machines, where each scheduler is at 127.0.0.1.
TEST(SnapshotsTest, TwoJobsOfOneConfigDoNotWriteThereTogether) {
  const TemporaryDirectory directory;
  Job job;
  job.set_name("lenet");
  const auto options = [&](uint64_t number) {
    return SnapshotOptions{
        .prefix = directory.Path("x"), .interval = 7, .owner = SnapshotOwner(job, number)};
  };
  Snapshots first(options(71));
  CheckWritable(first);
  EXPECT_THAT(ErrorOf(options(7)), HasSubstr("is in use by the job \"lenet\" of the scheduler at"));
  EXPECT_EQ(ErrorOf(options(71)), "") << "another worker of the same job";
}

// Whoever writes in a stopped worker's place keeps others out when that is gone.
TEST(SnapshotsTest, TheLockOfAWorkerThatIsGoneIsTakenOver) {
  const TemporaryDirectory directory;
  const SnapshotOptions options{.prefix = directory.Path("x"), .interval = 7};
  std::optional<Snapshots> stopped(std::in_place, options);
  CheckWritable(*stopped);
  Snapshots next(options);
  CheckWritable(next);
  stopped.reset();
  CheckWritable(next);
  EXPECT_THAT(ErrorOf({.prefix = options.prefix, .owner = "another"}), HasSubstr("is in use by"));
}

// Its job may be dead, and only the file server does not know yet.
TEST(SnapshotsTest, TheLockOfAnotherMachineIsWaitedFor) {
  const TemporaryDirectory directory;
  const std::string path =
      directory.Write("x.lock", "the job \"a\", process 7 on no.such.host.invalid");
  const int descriptor = open(path.c_str(), O_RDWR);
  ASSERT_EQ(flock(descriptor, LOCK_EX | LOCK_NB), 0);
  std::thread ends([descriptor] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    close(descriptor);
  });
  EXPECT_EQ(ErrorOf({.prefix = directory.Path("x"), .interval = 7, .owner = "the job \"b\""}), "");
  ends.join();
}

// Whoever is killed in the middle of a snapshot leaves a file as large as the model.
class UnfinishedSnapshotsTest : public testing::Test {
 protected:
  UnfinishedSnapshotsTest() {
    const pid_t gone = fork();
    if (gone == 0) _exit(0);
    waitpid(gone, nullptr, 0);
    dead_ = ".tmp" + std::to_string(gone);
  }

  void Write(const std::string& name, std::chrono::minutes age) {
    const std::string path = directory_.Write(name, "part");
    std::filesystem::last_write_time(path, std::filesystem::file_time_type::clock::now() - age);
  }
  // Those of no process, and of others' snapshots.
  std::set<std::string> WriteOthers() {
    std::set<std::string> others = {"x_iter_5.caffemodel", "x2_iter_5.caffemodel" + dead_};
    for (const char* const end : {"", "12x", "-1", "99999999999999999999"}) {
      others.insert(std::string("x_iter_5.caffemodel.tmp") + end);
    }
    for (const std::string& name : others) Write(name, kLong);
    return others;
  }
  // Without the lock.
  std::set<std::string> Left() const {
    std::set<std::string> left;
    for (const auto& file : std::filesystem::directory_iterator(directory_.Path(""))) {
      left.insert(file.path().filename());
    }
    left.erase("x.lock");
    return left;
  }

  static constexpr std::chrono::minutes kLong{11};
  const TemporaryDirectory directory_;
  const std::string own_ = ".tmp" + std::to_string(getpid());
  const std::string alive_ = ".tmp1";
  std::string dead_;
};

// In containers even the number of who has written it is that of who comes next.
TEST_F(UnfinishedSnapshotsTest, WhoHasThePrefixRemovesAllThatKilledWorkersHadBegun) {
  const std::set<std::string> others = WriteOthers();
  for (const std::string& writer : {dead_, own_, alive_}) {
    Write("x_iter_7.caffemodel" + writer, {});
    Write("x_iter_7.solverstate" + writer, kLong);
  }
  EXPECT_EQ(ErrorOf({.prefix = directory_.Path("x"), .interval = 7}), "");
  EXPECT_EQ(Left(), others);
}

// A worker of the job that was stopped may go on and finish its own.
TEST_F(UnfinishedSnapshotsTest, BesideAnotherWorkerOnlyThoseAreRemovedThatNobodyCanFinish) {
  const SnapshotOptions options{.prefix = directory_.Path("x"), .interval = 7};
  Snapshots stopped(options);
  CheckWritable(stopped);
  std::set<std::string> kept = WriteOthers();
  for (const std::string& writer : {dead_, own_}) {
    Write("x_iter_5.caffemodel" + writer, kLong);
    kept.insert("x_iter_10.caffemodel" + writer);
    Write("x_iter_10.caffemodel" + writer, {});
  }
  kept.insert("x_iter_5.caffemodel" + alive_);
  Write("x_iter_5.caffemodel" + alive_, kLong);
  EXPECT_EQ(ErrorOf(options), "");
  EXPECT_EQ(Left(), kept);
}

// Nobody, not even root, makes a file below a file.
TEST(SnapshotsTest, APlaceThatCannotIsFoundOutAtOnce) {
  const TemporaryDirectory directory;
  const std::string prefix = directory.Write("file", "") + "/x";
  for (const SnapshotOptions& options :
       {SnapshotOptions{.prefix = prefix, .interval = 7, .after_train = false},
        SnapshotOptions{.prefix = prefix}}) {
    EXPECT_THAT(ErrorOf(options), HasSubstr("no snapshots can be written with snapshot_prefix \"" +
                                            prefix + "\": can't create " + prefix));
  }
  EXPECT_EQ(ErrorOf({.prefix = prefix, .after_train = false}), "") << "none will be";
  EXPECT_EQ(ErrorOf({}), "");
}

// HDF5 would have a group "a" with a group "b", and Caffe looks for layers among the first ones.
TEST(SnapshotsTest, WhatCaffePassesOverInHdf5FilesIsSaid) {
  NetDescription net = NetWith(1);
  const auto said = [&](const SnapshotOptions& options) {
    return Snapshots(options).WhatCaffePassesOver(net).value_or("");
  };
  net.layers[0].parameter.set_name("a");
  net.layers[1].parameter.set_name("no/values");
  EXPECT_EQ(said({.prefix = "x", .hdf5 = true}), "");
  net.layers[0].parameter.set_name("a/b");
  EXPECT_THAT(said({.prefix = "x", .hdf5 = true}),
              AllOf(HasSubstr("layer \"a/b\" has a /"), HasSubstr("BINARYPROTO")));
  EXPECT_EQ(said({.prefix = "x", .hdf5 = false}), "");
  EXPECT_EQ(said({.prefix = "", .hdf5 = true}), "") << "none will be";
}

TEST(SnapshotsTest, AFormatThatTheBuildLacksIsFoundOutAtOnce) {
  const TemporaryDirectory directory;
  const std::string error = ErrorOf({.prefix = directory.Path("x"), .hdf5 = true});
  EXPECT_EQ(error.empty(), HasHdf5()) << error;
}

// Two numbers of 4 bytes a parameter, in a file of at most 2^31 - 1 bytes, of which 1 MiB is for
// the layers' settings.
TEST(SnapshotsTest, AModelThatAFileCannotHoldIsFoundOutAtOnce) {
  const TemporaryDirectory directory;
  const auto error = [&](const NetDescription& net, const std::string& solver_type = "SGD",
                         bool hdf5 = false) {
    Snapshots snapshots({.prefix = directory.Path("x"), .hdf5 = hdf5});
    return MessageOf<ConfigError>([&] { CheckWritable(snapshots, net, solver_type); });
  };
  constexpr int64_t kMost = ((int64_t{1} << 31) - (1 << 20)) / 4 - 1;
  EXPECT_EQ(error(NetWith(kMost)), "");
  EXPECT_EQ(error(NetWith(kMost / 2), "Adam"), "");
  EXPECT_THAT(error(NetWith(kMost + 1)), HasSubstr("write snapshot_format: HDF5 in the solver"));
  EXPECT_THAT(
      error(NetWith(300'000'000), "Adam"),
      HasSubstr("has 300000000 parameters, for which solver type Adam keeps 2 numbers each"));
  EXPECT_EQ(error(NetWith(300'000'000), "Adam", HasHdf5()).empty(), HasHdf5());
}

// A training that would write none is not refused for it, nor ends when one is asked for.
TEST(SnapshotsTest, WhatCanNotBeWrittenIsFoundOutWhenItIsAskedFor) {
  const TemporaryDirectory directory;
  caffe::SolverParameter solver;
  solver.set_type("SGD");
  solver.set_lr_policy("fixed");
  for (const bool fits : {false, true}) {
    Snapshots snapshots({.prefix = directory.Path("x"), .after_train = false});
    const NetDescription net = NetWith(fits ? 10 : 600'000'000);
    CheckWritable(snapshots, net);
    const auto why_not = snapshots.WhyNotWritable(net, ToModelSpec(net, solver));
    EXPECT_EQ(why_not.has_value(), !fits);
    EXPECT_THAT(why_not.value_or(""), HasSubstr(fits ? "" : "write snapshot_format: HDF5"));
  }
}

// What is not trained is in the model's file, and has its zeros in that of the state.
TEST(SnapshotsTest, WhatIsNotTrainedCountsToWhatAFileCanHold) {
  const TemporaryDirectory directory;
  Snapshots snapshots({.prefix = directory.Path("x")});
  const auto error = [&](const NetDescription& net, const std::string& solver_type) {
    return MessageOf<ConfigError>([&] { CheckWritable(snapshots, net, solver_type); });
  };
  EXPECT_EQ(error(NetWith(10, 300'000'000), "SGD"), "");
  EXPECT_THAT(error(NetWith(10, 300'000'000), "Adam"), HasSubstr("has 300000010 parameters"));
  EXPECT_THAT(error(NetWith(10, 600'000'000), "SGD"), HasSubstr("has 600000010 parameters"));
  NetDescription sharing = NetWith(300'000'000);
  sharing.layers[1].parameters = sharing.layers[0].parameters;
  sharing.layers[1].parameters[0].owner = {.layer = 0, .blob = 0};
  EXPECT_THAT(error(sharing, "SGD"), HasSubstr("has 600000000 parameters"));
}

// An engine whose net has one blob, of one value.
class OneValueEngine : public ReplayEngine {
 public:
  explicit OneValueEngine(float value) : ReplayEngine(OneLayer(), 0, 1), value_(value) {
    net_.layers.resize(1);
    net_.layers[0].parameter.set_name("a");
    net_.layers[0].parameters = {{.shape = {1}, .filler = {}}};
  }

  const NetDescription* net() const override { return &net_; }
  NetValues Values() const override { return {{{value_}}}; }

 private:
  static Replay OneLayer() {
    Replay replay;
    ReplayLayer& layer = *replay.add_layers();
    layer.set_name("a");
    layer.set_parameters(1);
    return replay;
  }

  NetDescription net_;
  float value_;
};

// Snapshots in both formats, in a directory that is full when it is told to be.
class FullDiskTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam() && !HasHdf5()) GTEST_SKIP() << "this build has no HDF5";
  }

  void Write(float value) {
    const OneValueEngine engine(value);
    caffe::SolverParameter solver;
    solver.set_type("SGD");
    solver.set_lr_policy("fixed");
    const ModelSpec model = ToModelSpec(*engine.net(), solver);
    snapshots_.Write(engine, model, 7, std::vector<float>{value});
  }
  std::string Name(const std::string& extension) const {
    return directory_.Path("x_iter_7" + extension + (GetParam() ? ".h5" : ""));
  }
  // What is not written under a temporary name, for a directory is there.
  std::string Block(const std::string& extension) const {
    const std::string path = Name(extension) + ".tmp" + std::to_string(getpid());
    std::filesystem::create_directory(path);
    return path;
  }
  std::string Content(const std::string& extension) const {
    return ReadRegularFile(Name(extension), ExitCode::kDataError);
  }

  const TemporaryDirectory directory_;
  Snapshots snapshots_{{.prefix = directory_.Path("x"), .hdf5 = GetParam()}};
};

// As where a job goes back behind it, or begins anew with the prefix of another.
TEST_P(FullDiskTest, ASnapshotThatIsToBeReplacedIsLeftWhole) {
  Write(1);
  const std::string model = Content(".caffemodel");
  const std::string state = Content(".solverstate");
  for (const char* const part : {".caffemodel", ".solverstate"}) {
    const std::string blocked = Block(part);
    EXPECT_THAT(MessageOf<Error>([&] { Write(2); }), HasSubstr("can't create " + blocked));
    EXPECT_EQ(Content(".caffemodel"), model);
    EXPECT_EQ(Content(".solverstate"), state);
    std::filesystem::remove(blocked);
  }
  Write(2);
  EXPECT_NE(Content(".caffemodel"), model);
  EXPECT_NE(Content(".solverstate"), state);
}

// They are worth having also without what the solver keeps.
TEST_P(FullDiskTest, TheValuesOfANewSnapshotAreKeptWhereTheStateFindsNoRoom) {
  const std::string blocked = Block(".solverstate");
  EXPECT_THAT(MessageOf<Error>([&] { Write(1); }), HasSubstr("can't create " + blocked));
  EXPECT_NE(Content(".caffemodel"), "");
}

INSTANTIATE_TEST_SUITE_P(Formats, FullDiskTest, testing::Bool());

}  // namespace
}  // namespace poseidon
