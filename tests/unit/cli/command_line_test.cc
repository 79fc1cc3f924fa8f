// The command line of `poseidon`: what it understands, what it refuses and with which words.
#include "cli/command_line.h"

#include <gflags/gflags.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/help.h"
#include "cli/input/flags.h"
#include "cli/output/table.h"
#include "cli/verbs.h"
#include "proto/job.pb.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Words = std::vector<std::string>;

class CommandLine : public ::testing::Test {
 protected:
  // What it prints; it must end well.
  static std::string Run(const Words& words) {
    std::ostringstream out;
    EXPECT_EQ(RunCommand(words, out), ExitCode::kSuccess);
    return out.str();
  }

  // The message it is refused with.
  static std::string Refusal(const Words& words) {
    std::ostringstream out;
    try {
      RunCommand(words, out);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), ExitCode::kConfigError);
      return error.what();
    }
    ADD_FAILURE() << "not refused";
    return "";
  }

 private:
  gflags::FlagSaver saver_;
};

TEST_F(CommandLine, HelpIsAskedForInManyWays) {
  const std::string help = Run({});
  EXPECT_EQ(Run({"--help"}), help);
  EXPECT_EQ(Run({"help"}), help);
  EXPECT_EQ(Run({"-h"}), help);
  for (const Verb& verb : Verbs()) EXPECT_THAT(help, HasSubstr(verb.summary));

  const std::string plan = Run({"plan", "--help"});
  EXPECT_EQ(Run({"help", "plan"}), plan);
  EXPECT_EQ(Run({"plan", "--net=x", "-h"}), plan);
  EXPECT_THAT(plan, HasSubstr("--kv_pair_bytes=N      Largest size"));

  const std::string convert = Run({"convert"});
  EXPECT_EQ(Run({"help", "convert"}), convert);
  EXPECT_THAT(convert, HasSubstr("convert cifar10"));
  EXPECT_THAT(Run({"help", "convert", "csv"}), HasSubstr("--noshuffle "));
}

TEST_F(CommandLine, HelpFitsATerminal) {
  for (const Verb& verb : Verbs()) {
    std::istringstream lines(VerbHelp(verb) + ProgramHelp());
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
  }
}

TEST_F(CommandLine, DefaultsAreTheJobConfigs) {
  const Communication defaults;
  EXPECT_EQ(FLAGS_kv_pair_bytes, defaults.kv_pair_bytes());
  EXPECT_EQ(FLAGS_cores, Cluster().cores());
  EXPECT_EQ(FLAGS_message_cost, Network().message_cost());
  EXPECT_EQ(FLAGS_latency, Network().latency());
}

// From the directory of no repository, or with a typing error.
TEST_F(CommandLine, FilesThatAreNotThereAreRefusedWithOnesThatAre) {
  const TemporaryDirectory directory;
  const std::string net = directory.Write("net.prototxt", "");
  EXPECT_EQ(
      Refusal({"plan", "--net=" + directory.Path("nte.prototxt"), "--workers=2", "--servers=2"}),
      "can't read " + directory.Path("nte.prototxt") +
          ": No such file or directory; did you mean " + net + "?");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(directory.path());
  const std::string refusal = Refusal({"run", "--config=tools/models/make.py"});
  std::filesystem::current_path(before);
  EXPECT_THAT(refusal, HasSubstr("(the working directory is " + directory.path() + ")"));
}

TEST_F(CommandLine, RefusesUnknownVerbs) {
  EXPECT_EQ(Refusal({"rnu"}), "there is no verb \"rnu\"; did you mean \"run\"?");
  EXPECT_EQ(Refusal({"plna"}), "there is no verb \"plna\"; did you mean \"plan\"?");
  EXPECT_EQ(Refusal({"conver"}), "there is no verb \"conver\"; did you mean \"convert\"?");
  EXPECT_EQ(Refusal({"convert", "minst"}),
            "there is no verb \"convert minst\"; did you mean \"convert mnist\"?");
  EXPECT_THAT(Refusal({"frobnicate"}), HasSubstr("`poseidon --help` lists them"));
  EXPECT_THAT(Refusal({"help", "plna"}), HasSubstr("did you mean \"plan\"?"));
  EXPECT_THAT(Refusal({"--net=x", "plan"}), HasSubstr("the verb comes first"));
}

TEST_F(CommandLine, RefusesUnknownFlags) {
  EXPECT_EQ(Refusal({"plan", "--wokers=4"}),
            "`poseidon plan` has no flag --wokers; did you mean --workers?");
  // A flag that gflags knows, of glog or of another verb, is none of this verb's.
  EXPECT_THAT(Refusal({"plan", "--minloglevel=1"}), HasSubstr("has no flag --minloglevel"));
  EXPECT_THAT(Refusal({"run", "--label_column=1"}), HasSubstr("`poseidon run --help` lists them"));
  EXPECT_THAT(Refusal({"plan", "--nonet"}), HasSubstr("has no flag --nonet"));
  EXPECT_THAT(Refusal({"plan", "--"}), HasSubstr("runs no program"));
}

TEST_F(CommandLine, RefusesBadValues) {
  EXPECT_EQ(Refusal({"plan", "--workers=four"}),
            "--workers can't be \"four\"; it is of type int32");
  EXPECT_EQ(Refusal({"convert", "csv", "--replace=perhaps"}),
            "--replace can't be \"perhaps\"; it is of type bool");
  EXPECT_EQ(Refusal({"plan", "--workers"}), "--workers has no value; write --workers=P");
  EXPECT_EQ(Refusal({"plan", "net.prototxt"}),
            "`poseidon plan` takes flags only, but there is \"net.prototxt\"");
  EXPECT_THAT(Refusal({"run", "job.prototxt"}), EndsWith("; did you mean --config=job.prototxt?"));
  EXPECT_THAT(Refusal({"run", "caffe", "train"}),
              EndsWith("stand behind \"--\": `poseidon run [flags] -- caffe ...`"));
  EXPECT_EQ(Refusal({"keep", "poseidon_worker", "--config=job.prototxt"}),
            "`poseidon keep` takes flags only, but there is \"poseidon_worker\"; a program and its "
            "arguments stand behind \"--\": `poseidon keep -- poseidon_worker ...`");
}

// The verb itself refuses what is missing or out of range, so nothing is read here.
TEST_F(CommandLine, SetsFlagsInEverySpelling) {
  Refusal({"plan", "--workers", "3", "--kv-pair-bytes=8", "-lanes=2", "--format=xml"});
  EXPECT_EQ(FLAGS_workers, 3);
  EXPECT_EQ(FLAGS_kv_pair_bytes, 8);
  EXPECT_EQ(FLAGS_lanes, 2);
  Refusal({"convert", "csv", "--noshuffle", "--replace", "--label_column=-2", "--source", "x"});
  EXPECT_FALSE(FLAGS_shuffle);
  EXPECT_TRUE(FLAGS_replace);
  EXPECT_EQ(FLAGS_label_column, -2);
}

TEST_F(CommandLine, PlanRefusesWhatItCannotPlan) {
  const auto refusal = [](const std::vector<std::string>& flags) {
    gflags::FlagSaver saver;
    Words words = {"plan"};
    words.insert(words.end(), flags.begin(), flags.end());
    return Refusal(words);
  };
  EXPECT_THAT(refusal({}), HasSubstr("give either --net"));
  EXPECT_THAT(refusal({"--net=x", "--solver=y"}), HasSubstr("give either --net"));
  EXPECT_EQ(refusal({"--net=x"}), "--workers is missing; give the number of workers");
  EXPECT_EQ(refusal({"--net=x", "--workers=0"}), "--workers is 0; it must be at least 1");
  EXPECT_EQ(refusal({"--net=x", "--workers=2", "--servers=-1"}),
            "--servers is -1; it must be at least 1");
  const auto with = [&refusal](const std::string& flag) {
    return refusal({"--net=x", "--workers=2", "--servers=1", flag});
  };
  EXPECT_EQ(with("--batch=0"), "--batch is 0; it must be at least 1");
  EXPECT_EQ(with("--policy=best"),
            "--policy is \"best\"; it must be one of BYTES, TIME, ALL_PS, ALL_SFB, ALL_RING, "
            "ALL_HALVING_DOUBLING, ALL_TORUS, ALL_ADAM");
  EXPECT_EQ(with("--lanes=65"), "--lanes is 65; it must be between 1 and 64");
  EXPECT_THAT(with("--message_cost=fast"), HasSubstr("--message_cost: \"fast\" is not a duration"));
  EXPECT_EQ(with("--flops=1e-300"), "--flops is 1e-300; it must be between 1000000 and 1e+18");
  EXPECT_EQ(with("--bandwidth=1bps"),
            "--bandwidth is 1bps; it must be between 100Kbps and 1000Tbps");
  EXPECT_EQ(with("--latency=100h"), "--latency is 100h; it must be at most 60s");
  EXPECT_THAT(with("--goodput=1e-308"), StartsWith("--goodput is 1e-308, which leaves 1e-298bps"));
  EXPECT_THAT(with("--goodput=1bps"),
              StartsWith("--goodput is 1e-10, which leaves 1bps of 10Gbps"));
  EXPECT_EQ(with("--images_per_second=1e300"),
            "--images_per_second is 1e+300; it must be between 1e-06 and 1000000000");
  EXPECT_THAT(with("--kv_pair_bytes=6"), HasSubstr("it must be a multiple of 4"));
  for (const std::string input :
       {"", "1x28", "1x28x28x1", "1x0x28", "1x28x28px", "99999999999x1x1"}) {
    EXPECT_THAT(with("--input=" + input), HasSubstr("must be channels, height and width")) << input;
  }
  EXPECT_THAT(with("--input=1x28x28"), StartsWith("can't read x: No such file or directory"));
}

// The daemons' config is not beside the files that the user's names.
TEST_F(CommandLine, ABatchJobFindsWhatItsTrainingStartsFrom) {
  const TemporaryDirectory directory;
  const std::string weights = directory.Write("models/mine.caffemodel", "");
  const auto launch = [&](const std::string& start) {
    return Words{"launch", "slurm", "--nosubmit", "--out=" + directory.Path("out"),
                 "--config=" + directory.Write("models/job.prototxt",
                                               "cluster { workers: 2 servers: 1 } training { "
                                               "solver: \"configs/models/lenet/solver.prototxt\" " +
                                                   start + " }")};
  };
  Run(launch("weights: \"mine.caffemodel\""));
  std::stringstream script;
  script << std::ifstream(directory.Path("out/job.sbatch")).rdbuf();
  EXPECT_THAT(script.str(), HasSubstr("weights: \"" + weights + "\""));
  EXPECT_THAT(Refusal(launch("weights: \"none.caffemodel\"")),
              HasSubstr("there is no file none.caffemodel in the working directory"));
  EXPECT_THAT(Refusal(launch("snapshot: \"none.solverstate\"")),
              HasSubstr("there is no file none.solverstate in the working directory"));
}

// And not on its config, before anything is said to start.
TEST_F(CommandLine, AFileThatAFlagNamesAndThatIsNotThereIsBlamedOnTheFlag) {
  const auto refusal = [](const std::string& flag) {
    const gflags::FlagSaver saver;
    return Refusal({"run", "--config=configs/lenet_digits.prototxt", flag});
  };
  EXPECT_THAT(refusal("--weights=configs/lenet_digits.prototxt,none.caffemodel"),
              StartsWith("--weights: there is no file none.caffemodel in the working directory, " +
                         std::filesystem::current_path().string()));
  EXPECT_THAT(refusal("--snapshot=nope"), Not(HasSubstr("did you mean")));
  EXPECT_THAT(refusal("--snapshot=Latest"), EndsWith("; did you mean latest?"));
  const TemporaryDirectory directory;
  const std::string none = directory.Path("none");
  for (const std::string flag : {"--weights", "--snapshot"}) {
    EXPECT_EQ(refusal(flag + "=" + none),
              flag + ": there is no file " + none + "; name one that is there");
  }
}

// The hosts have files of their own.
TEST_F(CommandLine, AnAbsolutePathOfAFlagIsNotLookedForHereWithHosts) {
  const TemporaryDirectory directory;
  EXPECT_THAT(Refusal({"run", "--config=configs/lenet_digits.prototxt",
                       "--weights=" + directory.Path("none"),
                       "--hosts=" + directory.Write("hosts", "localhost\n"), "--restarts=1"}),
              StartsWith("--restarts with --hosts needs --snapshot=latest"));
}

// And not when all nodes have joined.
TEST_F(CommandLine, ABatchThatIsTooLargeIsRefusedBeforeAnythingStarts) {
  const TemporaryDirectory directory;
  const std::string net = directory.Write(
      "net.prototxt",
      "layer { name: 'x' type: 'Input' top: 'x' input_param { shape { dim: 2 dim: 3 } } } "
      "layer { name: 'l' type: 'EuclideanLoss' bottom: 'x' bottom: 'x' }");
  const std::string solver = directory.Write(
      "solver.prototxt", "net: '" + net + "' base_lr: 0.1 lr_policy: 'fixed' max_iter: 1");
  const std::string config =
      directory.Write("job.prototxt", "cluster { workers: 1 servers: 1 } training { solver: '" +
                                          solver + "' batch_per_worker: 2000000000 }");
  EXPECT_EQ(Refusal({"run", "--config=" + config, "--out=" + directory.Path("out")}),
            net +
                ":1:1: layer \"x\" (Input): top \"x\" would be 2000000000 x 3; expected extents of "
                "at least 1 and at most 2^31 - 1 values; the batch is that of "
                "training.batch_per_worker (divided by cluster.devices_per_worker) or --batch, not "
                "the net's");
  EXPECT_FALSE(std::filesystem::exists(directory.Path("out")));
}

// And not for the shapes of which that is the cause.
TEST_F(CommandLine, OneBatchForLayersOfSeveralIsRefusedForThat) {
  const TemporaryDirectory directory;
  const std::string net = directory.Write(
      "net.prototxt",
      "layer { name: 'x' type: 'DummyData' top: 'x' dummy_data_param { shape { dim: 2 dim: 6 } } } "
      "layer { name: 'y' type: 'DummyData' top: 'y' dummy_data_param { shape { dim: 4 dim: 3 } } } "
      "layer { name: 'l' type: 'EuclideanLoss' bottom: 'x' bottom: 'y' }");
  const std::string solver = directory.Write(
      "solver.prototxt", "net: '" + net + "' base_lr: 0.1 lr_policy: 'fixed' max_iter: 1");
  const std::string config =
      directory.Write("job.prototxt", "cluster { workers: 1 servers: 1 } training { solver: '" +
                                          solver + "' batch_per_worker: 8 }");
  EXPECT_THAT(Refusal({"run", "--config=" + config, "--out=" + directory.Path("out")}),
              HasSubstr("layer \"y\": has 4 samples in a batch, and layer \"x\" has 2"));
}

// Else it would show when the job's turn has come.
TEST_F(CommandLine, ABatchJobsRecipeGoesWithItsSolver) {
  const TemporaryDirectory directory;
  directory.Write("adam.prototxt",
                  "net: \"configs/models/lenet/net.prototxt\" type: \"Adam\" base_lr: 0.001 "
                  "lr_policy: \"fixed\" max_iter: 10");
  EXPECT_THAT(Refusal({"launch", "slurm", "--nosubmit", "--out=" + directory.Path("out"),
                       "--config=" + directory.Write("job.prototxt",
                                                     "cluster { workers: 2 servers: 1 } training { "
                                                     "solver: \"adam.prototxt\" large_batch { "
                                                     "momentum_correction: true } }")}),
              HasSubstr("works with SGD and Nesterov"));
  EXPECT_FALSE(std::filesystem::exists(directory.Path("out")));
}

// Else the job would run for as long as the cluster allows where nobody says how long.
TEST_F(CommandLine, TheCommandThatSubmitsAScriptHasTheFlagsOfSbatch) {
  const TemporaryDirectory directory;
  const auto shown = [&](const Words& flags) {
    gflags::FlagSaver saver;
    Words words = {"launch", "slurm", "--nosubmit", "--config=configs/lenet_digits.prototxt"};
    words.insert(words.end(), flags.begin(), flags.end());
    ::testing::internal::CaptureStdout();
    Run(words);
    return ::testing::internal::GetCapturedStdout();
  };
  const std::string out = directory.Path("out");
  EXPECT_EQ(shown({"--out=" + out, "--sbatch_flags=--time=8:00:00  --mail-user=$me;reboot"}),
            "the script is " + out +
                "/job.sbatch; `sbatch --time=8:00:00 '--mail-user=$me;reboot' " + out +
                "/job.sbatch` submits it\n");
  EXPECT_THAT(shown({"--out=" + directory.Path("my out")}),
              HasSubstr("; `sbatch '" + directory.Path("my out") + "/job.sbatch'` submits it\n"));
}

TEST_F(CommandLine, FlagsForHostsAreRefusedWithoutHosts) {
  for (const std::string verb : {"run", "doctor"}) {
    for (const std::string flag : {"--remote_shell", "--remote_programs"}) {
      gflags::FlagSaver saver;
      EXPECT_EQ(Refusal({verb, "--config=configs/lenet_digits.prototxt", flag + "=/opt"}),
                flag + " is about the hosts of --hosts; give --hosts=FILE, too, or leave it out");
    }
  }
}

TEST(Wrap, BreaksBetweenWords) {
  const std::string word(30, 'w');
  const std::string text = word + " " + word + " " + word;
  EXPECT_EQ(Wrap(text, 0), word + " " + word + "\n" + word + "\n");
  EXPECT_EQ(Wrap(text, 20, 20),
            word + "\n" + std::string(20, ' ') + word + "\n" + std::string(20, ' ') + word + "\n");
  EXPECT_EQ(Wrap("a", 2), "  a\n");
}

TEST(Table, AlignsColumns) {
  Table table({{"layer"}, {"floats", Table::Align::kRight}, {"scheme"}});
  table.AddRow({"a", "1,000,000", ""});
  table.AddRow({"a long name", "7", "PS"});
  EXPECT_EQ(table.ToString(),
            "layer           floats  scheme\n"
            "a            1,000,000\n"
            "a long name          7  PS\n");
}

TEST(Grouped, PartsThousands) {
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(-123), "-123");
  EXPECT_EQ(Grouped(1000), "1,000");
  EXPECT_EQ(Grouped(-1234567), "-1,234,567");
}

}  // namespace
}  // namespace poseidon
