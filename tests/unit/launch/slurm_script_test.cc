// What the batch script does in the end, with programs of a few words in the place of Slurm's and
// the job's. (Jobs that train: tests/hosts/slurm_test.py.)
#include "launch/slurm_script.h"

#include <gtest/gtest.h>

#include "core/child_process.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

class SlurmScriptTest : public testing::Test {
 protected:
  SlurmScriptTest() {
    WriteProgram("scontrol", "[ \"$1\" != requeue ] || touch " + Queued());
    WriteProgram("srun", "exit 0");
    WriteProgram("poseidon", "exit 0");
  }

  // Whether the job is queued again when its scheduler does so.
  bool IsQueuedAgain(const std::string& scheduler, int restarts = 1) {
    WriteProgram("poseidon_scheduler", scheduler);
    std::filesystem::remove(Queued());
    SlurmJob slurm;
    slurm.job.set_name("test");
    slurm.restarts = restarts;
    slurm.programs = directory_.Path("bin");
    slurm.out = directory_.Path("out");
    ChildOptions child;
    child.name = "script";
    child.command = {"/usr/bin/env", "PATH=" + slurm.programs + ":/usr/bin:/bin", "SLURM_JOB_ID=7",
                     "/bin/bash", directory_.Write("job.sbatch", SlurmScript(slurm))};
    child.log = directory_.Path("log");
    ChildProcess(std::move(child)).Wait();
    return std::filesystem::exists(Queued());
  }

 private:
  std::string Queued() const { return directory_.Path("queued"); }
  void WriteProgram(const std::string& name, const std::string& script) {
    std::filesystem::permissions(directory_.Write("bin/" + name, "#!/bin/bash\n" + script + "\n"),
                                 std::filesystem::perms::owner_all);
  }

  TemporaryDirectory directory_;
};

TEST_F(SlurmScriptTest, IsQueuedAgainAfterWhatMayPass) {
  for (const char* passing : {"exit 3", "kill -KILL $$", "kill -ABRT $$", "kill -SEGV $$"}) {
    EXPECT_TRUE(IsQueuedAgain(passing)) << passing;
    EXPECT_FALSE(IsQueuedAgain(passing, 0)) << passing;
  }
  for (const char* lasting : {"exit 0", "exit 2", "exit 130", "kill -TERM $$"}) {
    EXPECT_FALSE(IsQueuedAgain(lasting)) << lasting;
  }
}

// By scancel, or because the job's time is over.
TEST_F(SlurmScriptTest, IsNotQueuedAgainWhenItIsToEnd) {
  const std::string stopped =
      "trap 'exit 3' TERM\n"
      "until caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' /proc/$PPID/status); "
      "[ $((0x$caught >> 14 & 1)) -eq 1 ]; do sleep 0.01; done\n"
      "kill -TERM $PPID\nwhile :; do sleep 0.01; done";
  EXPECT_FALSE(IsQueuedAgain(stopped));
}

}  // namespace
}  // namespace poseidon
