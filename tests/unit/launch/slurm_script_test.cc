// What the batch script does in the end, with programs of a few words in the place of Slurm's and
// the job's. (Jobs that train: tests/hosts/slurm_test.py.)
#include "launch/slurm_script.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <csignal>

#include "core/child_process.h"
#include "core/files/regular_file.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

class SlurmScriptTest : public testing::Test {
 protected:
  SlurmScriptTest() {
    WriteProgram("scontrol", "[ \"$1\" != requeue ] || touch " + Queued());
    WriteProgram("srun", "exit 3");  // as nodes end whose job fails
    WriteProgram("poseidon", "echo made > \"${2#--out=}/job.key\"");  // by `keys`
  }

  struct Ending {
    bool queued = false;  // again
    int code = 0;         // Slurm's
    std::string said;
  };
  // How the script ends when its scheduler does so.
  Ending EndingOf(const std::string& scheduler, int restarts = 1, int run = 0) {
    WriteProgram("poseidon_scheduler", scheduler);
    std::filesystem::remove(Queued());
    SlurmJob slurm;
    slurm.job.set_name("test");
    *slurm.job.mutable_training() = training_;
    slurm.job.mutable_recovery()->set_mode(recovery_);
    slurm.restarts = restarts;
    slurm.snapshot_prefix = Prefix();
    slurm.iterations = 500;
    slurm.snapshot_at_end = true;
    slurm.notice_seconds = 120;
    slurm.programs = directory_.Path("bin");
    slurm.out = out_;
    ChildOptions child;
    child.name = "script";
    child.command = {"/usr/bin/env",
                     "PATH=" + slurm.programs + ":/usr/bin:/bin",
                     "SLURM_JOB_ID=7",
                     "SLURM_RESTART_COUNT=" + std::to_string(run),
                     "timeout",
                     "--signal=KILL",
                     "60",
                     "/bin/bash",
                     directory_.Write("job.sbatch", SlurmScript(slurm))};
    child.log = directory_.Path("log");
    ChildProcess script(std::move(child));
    Ending ending;
    ending.code = script.Wait().code;
    ending.queued = std::filesystem::exists(Queued());
    ending.said = ReadRegularFile(directory_.Path("log"), ExitCode::kFailure);
    return ending;
  }

  // Whether the job is queued again when its scheduler ends so.
  bool IsQueuedAgain(const std::string& scheduler, int restarts = 1) {
    return EndingOf(scheduler, restarts).queued;
  }

  std::string Prefix() const { return directory_.Path("snapshots of/le [n]et*"); }

  // A scheduler that has the script hear `signal`, and then does that when it hears `heard` itself.
  static std::string Signalled(const std::string& signal, int bit, const std::string& heard,
                               const std::string& then) {
    return "trap '" + then + "' " + heard +
           "\n"
           "until caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' /proc/$PPID/status); "
           "[ $((0x$caught >> " +
           std::to_string(bit - 1) +
           " & 1)) -eq 1 ]; do sleep 0.01; done\n"
           "kill -" +
           signal + " $PPID\nwhile :; do sleep 0.01; done";
  }

  void WriteProgram(const std::string& name, const std::string& script) {
    std::filesystem::permissions(directory_.Write("bin/" + name, "#!/bin/bash\n" + script + "\n"),
                                 std::filesystem::perms::owner_all);
  }

  TemporaryDirectory directory_;
  std::string out_ = directory_.Path("out");
  Training training_;
  Recovery::Mode recovery_ = Recovery::NONE;

 private:
  std::string Queued() const { return directory_.Path("queued"); }
};

TEST_F(SlurmScriptTest, TheKeyIsFoundWhateverTheDirectoryIsCalled) {
  out_ = directory_.Path("a \"b\" \\c $HOME `d`");
  EXPECT_EQ(EndingOf("exit 0").code, 0);
  Job job;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
      ReadRegularFile(out_ + "/job.prototxt", ExitCode::kFailure), &job));
  EXPECT_EQ(job.security().key_file(), out_ + "/run.key");
  EXPECT_EQ(ReadRegularFile(out_ + "/run.key", ExitCode::kFailure), "made\n");
}

// An earlier job's is.
TEST_F(SlurmScriptTest, TheUsersKeysAreNotReplaced) {
  for (const char* name : {"out/job.key", "out/config.key", "out/run.key"}) {
    directory_.Write(name, "before\n");
  }
  EXPECT_EQ(EndingOf("exit 0").code, 0);
  EXPECT_EQ(ReadRegularFile(out_ + "/job.key", ExitCode::kFailure), "before\n");
  EXPECT_EQ(ReadRegularFile(out_ + "/config.key", ExitCode::kFailure), "before\n");
  EXPECT_EQ(ReadRegularFile(out_ + "/run.key", ExitCode::kFailure), "made\n");
}

// Of which Slurm makes something else.
TEST_F(SlurmScriptTest, TheLogIsInTheDirectoryThoughItHasAPercentSign) {
  SlurmJob slurm;
  slurm.job.set_name("test");
  slurm.out = "/home/me/50%u of it's %j";
  const std::string script = SlurmScript(slurm);
  EXPECT_NE(script.find("\n#SBATCH --output='/home/me/50%%u of it'\\''s %%j/slurm-%j.log'\n"),
            std::string::npos)
      << script;
  EXPECT_NE(script.find("\nout='/home/me/50%u of it'\\''s %j'\n"), std::string::npos) << script;
}

TEST_F(SlurmScriptTest, IsQueuedAgainAfterWhatMayPass) {
  for (const char* passing : {"exit 3", "kill -KILL $$", "kill -ABRT $$", "kill -SEGV $$"}) {
    EXPECT_TRUE(IsQueuedAgain(passing)) << passing;
    EXPECT_FALSE(IsQueuedAgain(passing, 0)) << passing;
  }
  for (const char* lasting : {"exit 0", "exit 2", "exit 130", "kill -TERM $$"}) {
    EXPECT_FALSE(IsQueuedAgain(lasting)) << lasting;
  }
}

// A job with snapshots is stopped, and its scheduler hears a SIGHUP.
TEST_F(SlurmScriptTest, IsNotQueuedAgainWhenItIsToEnd) {
  for (const char* then : {"exit 3", "exit 130"}) {
    const Ending ending = EndingOf(Signalled("TERM", SIGTERM, "HUP", then));
    EXPECT_FALSE(ending.queued) << then;
    EXPECT_EQ(ending.code, then == std::string("exit 3") ? 3 : 130);
  }
}

// By a node that failed for a reason that lasts, as where data are missing. The scheduler's own
// code is 3 then.
TEST_F(SlurmScriptTest, TheCauseDecides) {
  for (const int cause : {2, 6, 9, 1, 3, 8}) {
    const Ending ending =
        EndingOf("printf '{\n  \"job\": \"test\",\n  \"exit_code\": " + std::to_string(cause) +
                 ",\n  \"nodes\": [{\"exit_code\": 3}]\n}\n' > " + directory_.Path("out") +
                 "/summary.json; exit 3");
    const bool lasts = cause == 2 || cause == 6 || cause == 9;
    EXPECT_EQ(ending.queued, !lasts) << cause;
    EXPECT_EQ(ending.code, cause);
  }
  const Ending cut_off = EndingOf("echo '{' > " + directory_.Path("out") + "/summary.json; exit 3");
  EXPECT_TRUE(cut_off.queued);
  EXPECT_EQ(cut_off.code, 3);
}

// As where the scheduler had no room for summary.json in the end.
TEST_F(SlurmScriptTest, IsNotQueuedAgainWhenItsWorkersHaveEndedWell) {
  const auto nodes_end = [this](const std::string& role, const std::string& how) {
    WriteProgram("srun", "case \"$*\" in *poseidon_" + role + "*) " + how + " ;; esac\nexit 3");
  };
  nodes_end("worker", "exit 0");
  const Ending ending = EndingOf("exit 1");
  EXPECT_FALSE(ending.queued) << ending.said;
  EXPECT_EQ(ending.code, 1);
  EXPECT_NE(ending.said.find("its workers have ended well, so the job is not queued again"),
            std::string::npos)
      << ending.said;
  nodes_end("server", "exit 0");
  EXPECT_TRUE(IsQueuedAgain("exit 1"));
  // They end later than the scheduler, and the script hears a signal meanwhile.
  const std::string late = "touch " + directory_.Path("waits") + "; until [ -e " +
                           directory_.Path("heard") + " ]; do sleep 0.01; done; ";
  nodes_end("worker", late + "exit 0");
  const std::string signals = "script=$PPID\n(until [ -e " + directory_.Path("waits") +
                              " ]; do sleep 0.01; done; sleep 0.2; kill -USR1 $script; sleep 0.2; "
                              "touch " +
                              directory_.Path("heard") + ") &\nexit 1";
  EXPECT_FALSE(IsQueuedAgain(signals));
}

// When its time is over, however often; unless it has got nowhere, and would not the next time.
TEST_F(SlurmScriptTest, IsQueuedAgainWithASnapshotWhenItsTimeIsOver) {
  const std::string directory = std::filesystem::path(Prefix()).parent_path().string();
  // As on machines whose users keep large files elsewhere.
  std::filesystem::create_directories(directory_.Path("scratch"));
  std::filesystem::create_directory_symlink(directory_.Path("scratch"), directory);
  const Ending late = EndingOf(Signalled("USR1", SIGUSR1, "HUP", "exit 130"), 0);
  EXPECT_FALSE(late.queued);
  EXPECT_NE(late.said.find("give it more by --time"), std::string::npos) << late.said;
  for (int run = 0; run < 3; ++run) {
    // Later than the job's file by more than files' times tell apart.
    const Ending ending = EndingOf("sleep 0.05\ntouch \"" + Prefix() + "_iter_20.solverstate\"\n" +
                                       Signalled("USR1", SIGUSR1, "HUP", "exit 130"),
                                   0, run);
    EXPECT_TRUE(ending.queued) << ending.said;
    EXPECT_EQ(ending.code, 130);
  }
  // Its worker is lost in its last minutes, which may pass.
  EXPECT_TRUE(IsQueuedAgain(Signalled("USR1", SIGUSR1, "HUP", "exit 3"), 1));
  EXPECT_FALSE(IsQueuedAgain(Signalled("USR1", SIGUSR1, "HUP", "exit 3"), 0));
  // It had come to its end, or was ended by something else.
  EXPECT_FALSE(IsQueuedAgain(Signalled("USR1", SIGUSR1, "HUP", "exit 0")));
}

// A training that has no snapshot yet begins as it was submitted, whatever lies there.
TEST_F(SlurmScriptTest, GoesOnFromItsOwnSnapshotsOnly) {
  const auto job_of = [this](int run, const std::string& scheduler) {
    EndingOf(scheduler, 1, run);
    return ReadRegularFile(directory_.Path("out/job.prototxt"), ExitCode::kFailure);
  };
  training_.add_weights("model \"w\".caffemodel");
  const std::string as_submitted = R"(weights: "model \"w\".caffemodel")";
  directory_.Write("snapshots of/le [n]et*_iter_9999.solverstate", "of an earlier job");
  EXPECT_NE(job_of(0, "exit 3").find(as_submitted), std::string::npos);
  const auto writes = [this](const std::string& end) {
    return "sleep 0.05; touch \"" + Prefix() + end + "\"; ";
  };
  // Twenty comes before three by name, and what is not finished has no name of its own.
  const std::string scheduler = writes("_iter_20.solverstate") + writes("_iter_3.solverstate") +
                                writes("_iter_30.solverstate.tmp1") + "exit 3";
  const std::string second = job_of(1, scheduler);
  EXPECT_NE(second.find(as_submitted), std::string::npos) << second;
  EXPECT_EQ(second.find("snapshot:"), std::string::npos) << second;
  const std::string third = job_of(2, writes("_iter_100.solverstate.h5") + "exit 3");
  EXPECT_NE(third.find("snapshot: \"" + Prefix() + "_iter_20.solverstate\""), std::string::npos)
      << third;
  EXPECT_EQ(third.find("weights"), std::string::npos) << third;
  EXPECT_NE(job_of(3, "exit 3").find("_iter_100.solverstate.h5\""), std::string::npos);
}

// As its last test failed, after the last snapshot.
TEST_F(SlurmScriptTest, ATrainingThatHasComeToItsEndEndsWell) {
  const auto writes = [this](const std::string& iteration) {
    return "sleep 0.05; touch \"" + Prefix() + "_iter_" + iteration + ".solverstate\"; exit 3";
  };
  std::filesystem::create_directory(directory_.Path("snapshots of"));
  EXPECT_TRUE(EndingOf(writes("499"), 2, 0).queued);
  EXPECT_TRUE(EndingOf(writes("500"), 2, 1).queued);
  const Ending last = EndingOf("exit 3", 2, 2);
  EXPECT_EQ(last.code, 0) << last.said;
  EXPECT_FALSE(last.queued);
  EXPECT_NE(last.said.find("nothing is left to do"), std::string::npos) << last.said;
}

// A daemon is started again and again, but not longer than there is a scheduler.
TEST_F(SlurmScriptTest, TasksEndWithTheScheduler) {
  recovery_ = Recovery::REPLACE;
  const std::string once = directory_.Path("once");
  const std::string twice = directory_.Path("twice");
  WriteProgram("poseidon_server", "kill -SEGV $$");
  WriteProgram("poseidon_worker",
               "[ ! -e " + once + " ] || touch " + twice + "; touch " + once + "; kill -SEGV $$");
  WriteProgram("srun", "until [ \"$1\" = sh ]; do shift; done; SLURM_PROCID=0 exec \"$@\"");
  directory_.Write("out/ended", "");  // of an earlier run
  const std::string scheduler = "until [ -e " + twice + " ]; do sleep 0.01; done; exit 4";
  EXPECT_EQ(EndingOf(scheduler).code, 4);
}

TEST_F(SlurmScriptTest, TheSchedulerEndsWithTheTasks) {
  recovery_ = Recovery::REPLACE;
  EXPECT_EQ(EndingOf("kill -ILL $$").code, 128 + SIGILL);
}

TEST_F(SlurmScriptTest, ASchedulerIsStartedAgainAsLongAsThereAreTasks) {
  recovery_ = Recovery::REPLACE;
  const std::string runs = directory_.Path("runs");
  const std::string done = directory_.Path("done");
  WriteProgram("srun", "until [ -e " + done + " ]; do sleep 0.01; done");
  EXPECT_EQ(EndingOf("echo >> " + runs + "; [ $(wc -l < " + runs +
                     ") -eq 3 ] || kill -KILL $$; touch " + done)
                .code,
            0);
}

// It may have been killed between the job's end and the words about it.
TEST_F(SlurmScriptTest, ASchedulerIsStartedAgainThoughNoTaskIsLeft) {
  recovery_ = Recovery::REPLACE;
  const std::string once = directory_.Path("once");
  EXPECT_EQ(EndingOf("[ ! -e " + once + " ] || exit 0; touch " + once + "; kill -KILL $$").code, 0);
}

// Of failures; what Slurm itself has queued again does not count.
TEST_F(SlurmScriptTest, RestartsAreCounted) {
  EXPECT_TRUE(EndingOf("exit 3", 2, 0).queued);
  EXPECT_FALSE(EndingOf("exit 130", 2, 1).queued);
  EXPECT_TRUE(EndingOf("exit 3", 2, 2).queued);
  EXPECT_FALSE(EndingOf("exit 3", 2, 3).queued);
  EXPECT_TRUE(EndingOf("exit 3", 2, 0).queued) << "submitted anew";
}

}  // namespace
}  // namespace poseidon
