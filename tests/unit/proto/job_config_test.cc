#include "proto/job_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/error.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

// A valid end of any config.
constexpr char kTraining[] = "training { solver: \"solver.prototxt\" }\n";

class JobConfigTest : public testing::Test {
 protected:
  JobConfig Read(const std::string& text) {
    return ReadJobConfig(directory_.Write("job.prototxt", text));
  }
  // The message without the directory, or "" if the text is good.
  std::string ErrorOf(const std::string& text) {
    const std::string message = MessageOf<ConfigError>([&] { Read(text); });
    const size_t name = message.find("job.prototxt");
    return name == std::string::npos ? message : message.substr(name);
  }
  std::string Path() const { return directory_.Path("job.prototxt"); }

  TemporaryDirectory directory_;
};

TEST_F(JobConfigTest, DefaultsAreValid) {
  const JobConfig config = Read(kTraining);
  EXPECT_EQ(config.job.cluster().workers(), 1);
  EXPECT_EQ(config.job.communication().kv_pair_bytes(), 2097152);
  EXPECT_EQ(config.path, Path());
}

TEST_F(JobConfigTest, FingerprintIsOfTheSettingsNotTheText) {
  const uint64_t fingerprint =
      Read("cluster { workers: 4 }\n" + std::string(kTraining)).fingerprint;
  EXPECT_EQ(Read("# four\ncluster {\n  workers: 4\n}" + std::string(kTraining)).fingerprint,
            fingerprint);
  EXPECT_NE(Read("cluster { workers: 5 }\n" + std::string(kTraining)).fingerprint, fingerprint);
}

TEST_F(JobConfigTest, BadValuesAreNamedWithTheirPlace) {
  const auto bad = [&](const std::string& text) { return ErrorOf(text + kTraining); };
  EXPECT_EQ(bad("cluster {\n  workers: 0\n}\n"),
            "job.prototxt:2:3: cluster.workers is 0; it must be between 1 and 1000000");
  EXPECT_EQ(bad("cluster {\n  workers: 2\n  servers: -3\n}\n"),
            "job.prototxt:3:3: cluster.servers is -3; it must be between 1 and 1000000");
  EXPECT_THAT(bad("cluster { scheduler_port: 65535 }\n"),
              EndsWith("1:11: cluster.scheduler_port is 65535; it must be between 1 and 65534"));
  EXPECT_THAT(bad("cluster { scheduler_host: \"\" }\n"), HasSubstr("scheduler_host is empty"));
  EXPECT_EQ(bad("\ncommunication {\n    kv_pair_bytes: 10\n}\n"),
            "job.prototxt:3:5: communication.kv_pair_bytes is 10; it must be a multiple of 4, the "
            "size of a float");
  EXPECT_THAT(bad("communication { kv_pair_bytes: 0 }\n"),
              EndsWith("kv_pair_bytes is 0; it must be between 4 and 536870912"));
  EXPECT_THAT(bad("communication { lanes: 65 }\n"), EndsWith("between 1 and 64"));
  EXPECT_THAT(bad("communication { window_bytes: 0 }\n"), HasSubstr("window_bytes is 0"));
  EXPECT_THAT(bad("communication { heartbeat_deadline_seconds: 2.5 }\n"),
              HasSubstr("heartbeat_deadline_seconds is 2.5; it must be at least three heartbeat "
                        "intervals, 3"));
  EXPECT_THAT(bad("communication { heartbeat_interval_seconds: nan }\n"),
              HasSubstr("heartbeat_interval_seconds is nan"));
  EXPECT_THAT(bad("communication { heartbeat_deadline_seconds: nan }\n"),
              HasSubstr("heartbeat_deadline_seconds is nan"));
  EXPECT_THAT(bad("communication { heartbeat_deadline_seconds: inf }\n"),
              HasSubstr("heartbeat_deadline_seconds is inf"));
  EXPECT_THAT(bad("communication { stall_deadline_seconds: 0 }\n"),
              HasSubstr("stall_deadline_seconds is 0"));
  EXPECT_THAT(bad("communication { local_steps: 0 }\n"), HasSubstr("local_steps is 0"));
  EXPECT_THAT(bad("communication { local_steps: 4 fragments: 5 }\n"), HasSubstr("fragments is 5"));
  EXPECT_THAT(bad("communication { local_steps: 9 fragments: 2 overlap_steps: 4 }\n"),
              HasSubstr("overlap_steps is 4"));
  EXPECT_THAT(bad("communication { heartbeat_interval_seconds: 0 }\n"),
              HasSubstr("heartbeat_interval_seconds is 0"));
}

// Scripts for batch systems, logs and results have the name in a line.
TEST_F(JobConfigTest, NamesAreOfOneLine) {
  const auto bad = [&](const std::string& name) {
    return ErrorOf("\nname: \"" + name + "\"\n" + kTraining);
  };
  EXPECT_EQ(bad("a b/c'd-\u00e9"), "");
  EXPECT_EQ(bad("a\\nb"),
            "job.prototxt:2:1: name has the control character \\x0a, and logs and scripts of batch "
            "systems have it in one line; remove the character");
  EXPECT_THAT(bad("a\\tb"), HasSubstr("character \\x09,"));
  EXPECT_THAT(bad("\\x7f"), HasSubstr("character \\x7f,"));
}

TEST_F(JobConfigTest, TiersAndDevicesAreChecked) {
  const auto bad = [&](const std::string& text) { return ErrorOf(text + kTraining); };
  const auto tier = [&](const std::string& text) {
    return bad("cluster { network {\n tier { members: 4 bandwidth: \"10Gbps\" }\n tier { " + text +
               " } } }\n");
  };
  EXPECT_EQ(tier("members: 2 bandwidth: \"40Gbps\" latency: \"5us\""), "");
  EXPECT_EQ(tier("members: 0 bandwidth: \"40Gbps\""),
            "job.prototxt:3:9: cluster.network.tier.1.members is 0; it must be between 1 and "
            "1000000");
  EXPECT_THAT(tier("members: 2147483647 bandwidth: \"40Gbps\""),
              EndsWith("members is 2147483647; it must be between 1 and 1000000"));
  EXPECT_THAT(tier("bandwidth: \"40Gbps\""), HasSubstr("tier.1.members is 0"));
  EXPECT_THAT(tier("members: 2"), HasSubstr("3:2: cluster.network.tier.1.bandwidth is missing"));
  EXPECT_THAT(tier("members: 2 bandwidth: \"0bps\""), HasSubstr("tier.1.bandwidth is 0"));
  EXPECT_THAT(tier("members: 2 bandwidth: \"4GB\""),
              HasSubstr("cluster.network.tier.1.bandwidth:"));
  EXPECT_THAT(tier("members: 2 bandwidth: \"1Gbps\" latency: \"5\""), HasSubstr("tier.1.latency:"));

  EXPECT_EQ(bad("cluster { devices_per_worker: 8 device_bandwidth: \"200Gbps\" }\n"), "");
  EXPECT_THAT(bad("cluster { devices_per_worker: 0 }\n"),
              HasSubstr("cluster.devices_per_worker is 0; it must be between 1"));
  EXPECT_THAT(bad("cluster { devices_per_worker: 2147483647 }\n"),
              HasSubstr("it must be between 1 and 1024"));
  EXPECT_THAT(bad("cluster { device_bandwidth: \"0Gbps\" }\n"),
              HasSubstr("cluster.device_bandwidth is 0Gbps; it must be between 100Kbps"));
  EXPECT_THAT(bad("cluster { copy_bandwidth: \"\" }\n"), HasSubstr("cluster.copy_bandwidth:"));
}

TEST_F(JobConfigTest, RatesBeyondAllMachinesAreRefused) {
  const auto cluster = [&](const std::string& text) {
    return ErrorOf("cluster {\n " + text + " }\n" + kTraining);
  };
  const std::string wide = "; it must be between 1000000 and 1e+18";
  for (const std::string field : {"flops", "reduction_rate", "update_rate", "device_update_rate"}) {
    for (const std::string value : {"1e-300", "0", "1e5", "1e19", "-4e12"}) {
      const std::string message = cluster(field + ": " + value);
      EXPECT_THAT(message, HasSubstr("job.prototxt:2:2: cluster." + field + " is ")) << value;
      EXPECT_THAT(message, EndsWith(wide)) << value;
    }
    // In no field, wherever it is (proto/text_values.h).
    for (const std::string value : {"inf", "nan"}) {
      EXPECT_THAT(cluster(field + ": " + value), HasSubstr("job.prototxt:2:2: " + field + " is "));
    }
    EXPECT_EQ(cluster(field + ": 1e6"), "");
    EXPECT_EQ(cluster(field + ": 1e18"), "");
  }
  const auto network = [&](const std::string& text) { return cluster("network { " + text + " }"); };
  EXPECT_THAT(network("bandwidth: \"99Kbps\""),
              EndsWith("2:12: cluster.network.bandwidth is 99Kbps; it must be between 100Kbps and "
                       "1000Tbps"));
  EXPECT_THAT(network("bandwidth: \"1001Tbps\""), HasSubstr("bandwidth is 1001Tbps"));
  EXPECT_EQ(network("bandwidth: \"100Kbps\" goodput_share: 1"), "");
  for (const std::string field : {"latency", "message_cost"}) {
    EXPECT_EQ(network(field + ": \"1min\""), "");
    EXPECT_THAT(network(field + ": \"2000000h\""),
                EndsWith("cluster.network." + field + " is 2000000h; it must be at most 60s"));
  }
  EXPECT_THAT(network("goodput_share: 1e-308"),
              EndsWith("cluster.network.goodput_share is 1e-308, which leaves 1e-298bps of 10Gbps; "
                       "it must leave at least 100Kbps"));
  EXPECT_THAT(network("goodput_share: 1.5"), EndsWith("it must be above 0 and at most 1"));
  EXPECT_THAT(network("goodput_share: 0.001 tier { members: 2 bandwidth: \"1Mbps\" }"),
              EndsWith("which leaves 1000bps of 1Mbps; it must leave at least 100Kbps"));
}

TEST_F(JobConfigTest, DisturbanceIsOfAKindThatMachinesHave) {
  const auto error = [&](const std::string& text) {
    return ErrorOf("cluster {\n disturbance {\n " + text + " } }\n" + kTraining);
  };
  EXPECT_EQ(error(""), "");
  EXPECT_EQ(error("iteration_spread: 1 layer_spread: 0.03 stall_interval_seconds: 2 "
                  "stall_seconds: 2 layer_cost: \"20us\" seed: 7"),
            "");
  EXPECT_EQ(error("stall_interval_seconds: 0"), "");
  for (const std::string field : {"iteration_spread", "layer_spread"}) {
    EXPECT_THAT(error(field + ": 1.1"), HasSubstr("job.prototxt:3:2: cluster.disturbance." + field +
                                                  " is 1.1; it must be "
                                                  "between 0 and 1"));
    EXPECT_THAT(error(field + ": -0.1"), HasSubstr(field + " is -0.1"));
    EXPECT_THAT(error(field + ": nan"), HasSubstr(field + " is "));
  }
  EXPECT_THAT(error("stall_interval_seconds: 0.0001"), HasSubstr("it must be between 0.001 and"));
  EXPECT_THAT(error("stall_seconds: 0.1"), HasSubstr("stall_interval_seconds how far apart"));
  EXPECT_THAT(error("stall_interval_seconds: 1 stall_seconds: 1.5"),
              HasSubstr("stall_seconds is 1.5; it must be between 0 and 1"));
  EXPECT_THAT(error("layer_cost: \"2h\""), HasSubstr("layer_cost is 2h; it must be at most 60s"));
}

TEST_F(JobConfigTest, DeviationsAreOfWorkersThatThereAre) {
  const auto error = [&](const std::string& text) {
    return ErrorOf("cluster {\n workers: 2\n " + text + " }\n" + kTraining);
  };
  EXPECT_EQ(error("deviation { worker: 0 compute_factor: 2 } "
                  "deviation { worker: 1 bandwidth: \"1Gbps\" }"),
            "");
  EXPECT_THAT(error("deviation { worker: 2 }"),
              HasSubstr("job.prototxt:3:14: cluster.deviation.0.worker is 2; it must be between 0 "
                        "and 1"));
  EXPECT_THAT(error("deviation { worker: -1 }"), HasSubstr("worker is -1"));
  EXPECT_THAT(error("deviation { compute_factor: 2 }"), HasSubstr("names no worker"));
  EXPECT_THAT(error("deviation { worker: 1 } deviation { worker: 1 compute_factor: 2 }"),
              HasSubstr("cluster.deviation.1.worker: worker 1 is there twice"));
  EXPECT_THAT(error("deviation { worker: 1 compute_factor: 0 }"),
              HasSubstr("compute_factor is 0; it must be between 0.001 and 1000"));
  EXPECT_THAT(error("deviation { worker: 1 bandwidth: \"1bps\" }"),
              HasSubstr("bandwidth is 1bps; it must be between 100Kbps and 1000Tbps"));
  EXPECT_THAT(error("network { goodput_share: 0.5 } "
                    "deviation { worker: 1 bandwidth: \"150Kbps\" }"),
              HasSubstr("which leaves 75000bps of 150Kbps"));
}

TEST_F(JobConfigTest, TrainingNeedsSomethingToTrain) {
  const auto solver_of = [this](const std::string& text) {
    const std::string message = MessageOf<ConfigError>([&] { SolverPath(Read(text)); });
    return message.substr(std::min(message.find("job.prototxt"), message.size()));
  };
  EXPECT_EQ(solver_of("cluster { workers: 4 }\ntraining { }\n"),
            "job.prototxt:2:1: training.solver is missing; name a Caffe solver prototxt, or set "
            "engine: REPLAY and a replay");
  EXPECT_THAT(solver_of(""), HasSubstr("training.solver is missing"));
  EXPECT_THAT(solver_of("training { solver: \"none.prototxt\" }"),
              HasSubstr("job.prototxt: training.solver: there is no file none.prototxt"));
  EXPECT_EQ(ErrorOf("cluster { workers: 4 }\n"), "") << "a user's program has a solver of its own";
  EXPECT_THAT(ErrorOf("training { engine: REPLAY }"), HasSubstr("training.replay has no layers"));
  const auto replay = [this](const std::string& layers) {
    return ErrorOf("training { engine: REPLAY\n replay { layers { name: \"a\" " + layers +
                   " } } }");
  };
  EXPECT_EQ(replay("parameters: 10"), "");
  EXPECT_EQ(
      replay("parameters: -10"),
      "job.prototxt:2:2: replay: layer \"a\": parameters is -10; expected 0 to 2^31 - 1 floats");
  EXPECT_THAT(replay(""), HasSubstr("no layer has parameters"));
  EXPECT_THAT(ErrorOf("training { solver: \"s\" iterations: 0 }"),
              HasSubstr("training.iterations is 0; it must be at least 1"));
  // A snapshot could not say which one it is of.
  EXPECT_EQ(ErrorOf("training { solver: \"s\" iterations: 2147483647 }"), "");
  EXPECT_THAT(ErrorOf("training { solver: \"s\" iterations: 2147483648 }"),
              HasSubstr("training.iterations is 2147483648"));
  EXPECT_THAT(ErrorOf("training { solver: \"s\" batch_per_worker: 0 }"),
              HasSubstr("training.batch_per_worker is 0; it must be at least 1"));
}

TEST_F(JobConfigTest, DevicesThatTrainAreChecked) {
  const auto bad = [&](const std::string& training, int devices = 1) {
    return ErrorOf("cluster { devices_per_worker: " + std::to_string(devices) +
                   " }\ntraining {\n solver: \"s\"\n " + training + " }\n");
  };
  EXPECT_EQ(bad("batch_per_worker: 12", 4), "");
  EXPECT_EQ(bad("batch_per_worker: 10", 4),
            "job.prototxt:4:2: training.batch_per_worker is 10, which the 4 devices of a worker "
            "(cluster.devices_per_worker) can't share equally");
  EXPECT_EQ(bad("device: CUDA precision: FLOAT16 loss_scale { initial: 8 growth_interval: 1 }"),
            "");
  EXPECT_EQ(bad("precision: BFLOAT16"), "");
  EXPECT_EQ(bad("device: CUDA precision: TF32"), "");
  EXPECT_THAT(bad("precision: TF32"), HasSubstr("training.precision is TF32, which works with"));
  EXPECT_THAT(bad("device: GPU"), HasSubstr("CPU, CUDA"));
  EXPECT_THAT(
      bad("precision: FLOAT16"),
      HasSubstr("4:2: training.precision is FLOAT16, which works with training.device CUDA"));
  EXPECT_THAT(bad("device: CUDA loss_scale { initial: 8 }"),
              HasSubstr("training.loss_scale is for training.precision FLOAT16"));
  EXPECT_THAT(bad("device: CUDA precision: FLOAT16 loss_scale { initial: 0 }"),
              HasSubstr("training.loss_scale.initial is 0; it must be above 0"));
  EXPECT_THAT(bad("device: CUDA precision: FLOAT16 loss_scale { initial: 1e38 }"),
              HasSubstr("; it must be above 0 and at most 2^126"));
  EXPECT_THAT(bad("device: CUDA precision: FLOAT16 loss_scale { growth_interval: 0 }"),
              HasSubstr("training.loss_scale.growth_interval is 0"));
  for (const std::string field : {"device: CUDA", "precision: BFLOAT16"}) {
    EXPECT_THAT(
        ErrorOf("training { engine: REPLAY " + field + " replay { layers { name: \"a\" } } }"),
        HasSubstr("training.engine is REPLAY, which computes nothing"));
  }
  EXPECT_THAT(ErrorOf("cluster {\n devices_per_worker: 4 }\ntraining { engine: REPLAY replay { "
                      "layers { name: \"a\" parameters: 1 } } }"),
              HasSubstr("job.prototxt:2:2: cluster.devices_per_worker is 4, but training.engine is "
                        "REPLAY"));
}

TEST_F(JobConfigTest, WhatAReplayWouldIgnoreIsRefused) {
  const auto bad = [&](const std::string& fields) {
    return ErrorOf("training { engine: REPLAY\n " + fields +
                   " replay { layers { name: \"a\" parameters: 1 } } }");
  };
  EXPECT_EQ(bad("device: CPU precision: FLOAT32 iterations: 3 seed: 2 trace: true"), "");
  const std::string reason =
      ": training.engine is REPLAY, which computes nothing and would ignore it; ";
  EXPECT_EQ(bad("batch_per_worker: 8"),
            "job.prototxt:2:2: training.batch_per_worker" + reason + "set training.replay.batch");
  EXPECT_EQ(bad("solver: \"solver.prototxt\""),
            "job.prototxt:2:2: training.solver" + reason +
                "leave it out, or set training.engine TORCH to train it");
  for (const std::string field : {"shuffle: true", "shuffle: false", "weights: \"w.caffemodel\"",
                                  "snapshot: \"latest\"", "large_batch { label_smoothing: 0.1 }"}) {
    EXPECT_EQ(bad(field), "job.prototxt:2:2: training." +
                              field.substr(0, field.find_first_of(": ")) + reason + "leave it out");
  }
}

TEST_F(JobConfigTest, AWarmUpGoesFromOneRateToAnother) {
  const auto bad = [&](const std::string& recipe) {
    return ErrorOf("training { solver: \"s\" large_batch {\n " + recipe + " } }\n");
  };
  EXPECT_EQ(bad("warmup_iterations: 500 warmup_base_lr: 0"), "");
  EXPECT_EQ(bad("warmup_iterations: 500 reference_batch: 256"), "");
  EXPECT_EQ(bad("warmup_iterations: 500"),
            "job.prototxt:2:2: training.large_batch.warmup_iterations needs warmup_base_lr, or "
            "reference_batch, which scales the rate that the solver's base_lr warms up to");
  EXPECT_THAT(bad("warmup_base_lr: 0.1"), HasSubstr("warmup_base_lr needs warmup_iterations"));
}

// As poseidon run's flags: a file may be right only with them, or only without.
TEST_F(JobConfigTest, AChangeIsMadeBeforeTheChecks) {
  const std::string path = directory_.Write(
      "job.prototxt", "cluster { workers: 2 deviation { worker: 2 } }\n" + std::string(kTraining));
  const auto with_workers = [&](int workers) {
    return ReadJobConfig(path, [&](Job& job) { job.mutable_cluster()->set_workers(workers); });
  };
  EXPECT_EQ(with_workers(3).job.cluster().workers(), 3);
  EXPECT_NE(with_workers(3).fingerprint, with_workers(4).fingerprint);
  for (const int workers : {1, 2}) {
    EXPECT_THAT(MessageOf<ConfigError>([&] { with_workers(workers); }),
                HasSubstr("job.prototxt:1:"));
  }
}

TEST_F(JobConfigTest, RecoveryIsChecked) {
  const auto bad = [&](const std::string& fields) {
    return ErrorOf("recovery { " + fields + " }" + kTraining);
  };
  EXPECT_THAT(bad("mode: REPLACE replacement_deadline_seconds: 0"),
              HasSubstr("recovery.replacement_deadline_seconds is 0; it must be between 0.1 and"));
  EXPECT_THAT(bad("mode: REPLACE give_up_after: 0"), HasSubstr("recovery.give_up_after is 0"));
  EXPECT_THAT(bad("mode: RESTART"), HasSubstr("Allowed: NONE, REPLACE"));
  EXPECT_THAT(bad("mode: REPLACE replacement_deadline: 3"),
              HasSubstr("did you mean \"replacement_deadline_seconds\"?"));
  // Who says how to recover believes that the job does.
  EXPECT_EQ(bad("give_up_after: 2"),
            "job.prototxt:1:1: recovery.mode is not given, so nothing is recovered; add mode: "
            "REPLACE, or mode: NONE");
  EXPECT_EQ(bad("mode: NONE give_up_after: 2"), "");
}

TEST_F(JobConfigTest, ElasticIsChecked) {
  const auto bad = [&](const std::string& fields) {
    return ErrorOf("cluster { workers: 3 } recovery { mode: SHRINK } elastic { " + fields + " }" +
                   kTraining);
  };
  EXPECT_EQ(bad(""), "");
  EXPECT_EQ(bad("min_workers: 3 max_workers: 3 regroup_interval_seconds: 0"), "");
  EXPECT_THAT(bad("min_workers: 4"), HasSubstr("elastic.min_workers is 4; it must be between 1"));
  EXPECT_THAT(bad("max_workers: 2"), HasSubstr("elastic.max_workers is 2; it must be between 3"));
  EXPECT_THAT(bad("regroup_interval_seconds: -1"),
              HasSubstr("elastic.regroup_interval_seconds is -1"));
  EXPECT_EQ(bad("learning_rate: LINEAR"), "");
  EXPECT_THAT(bad("learning_rate: LINEER"), HasSubstr("LINEER"));
  EXPECT_THAT(bad("minworkers: 1"), HasSubstr("did you mean \"min_workers\"?"));
}

TEST_F(JobConfigTest, MonitorIsChecked) {
  const auto bad = [&](const std::string& fields) {
    return ErrorOf("monitor { " + fields + " }" + kTraining);
  };
  EXPECT_EQ(bad("port: 65536"),
            "job.prototxt:1:11: monitor.port is 65536; it must be between 0 and 65535");
  EXPECT_EQ(bad("port: 0"), "");
  EXPECT_THAT(bad("address: \"\""), HasSubstr("monitor.address is empty"));
  for (const std::string loopback : {"localhost", "127.0.0.1", "127.8.9.1", "::1", "[::1]"}) {
    EXPECT_EQ(bad("address: \"" + loopback + "\""), "");
  }
  const auto at = [&](const std::string& scheduler, const std::string& monitor) {
    return ErrorOf("cluster { scheduler_port: " + scheduler + " }\nmonitor { " + monitor + " }" +
                   kTraining);
  };
  for (const std::string port : {"9780", "9779"}) {
    EXPECT_EQ(
        at(port, ""),
        "job.prototxt:2:1: monitor.port is 9780, at which the scheduler listens for its nodes "
        "(cluster.scheduler_port is " +
            port + ", and it takes the next port, too); give one of them another port");
  }
  EXPECT_THAT(at("9700", "port: 9701"), HasSubstr("2:11: monitor.port is 9701, at which"));
  EXPECT_EQ(at("9778", ""), "");
  EXPECT_EQ(at("9781", ""), "");
  EXPECT_EQ(bad("port: 9700"), "") << "poseidon run takes another scheduler_port";
  // A name may mean anything, and these addresses are every device's, or another machine's.
  for (const std::string other : {"0.0.0.0", "::", "10.1.2.3", "node7", "127.0.0.1.example"}) {
    EXPECT_THAT(bad("address: \"" + other + "\""),
                HasSubstr("1:11: monitor.address is \"" + other +
                          "\", which other machines reach, but there is no monitor.token_file"));
    EXPECT_EQ(bad("address: \"" + other + "\" token_file: \"token\""), "");
  }
}

TEST_F(JobConfigTest, UnknownFieldsAndFiles) {
  EXPECT_THAT(ErrorOf("cluster {\n  worker: 4\n}\n"), HasSubstr("job.prototxt:2:"));
  EXPECT_THAT(ErrorOf("cluster {\n  worker: 4\n}\n"), HasSubstr("did you mean \"workers\"?"));
  EXPECT_THAT(ErrorOf("communication { policy: FASTEST }"), HasSubstr("BYTES, ALL_PS, ALL_SFB"));
  EXPECT_THROW(ReadJobConfig(directory_.Path("none.prototxt")), ConfigError);
}

TEST_F(JobConfigTest, FilesAreFoundBesideTheConfig) {
  const JobConfig config = Read(kTraining);
  const std::string beside = directory_.Write("solver.prototxt", "");
  EXPECT_EQ(ResolvePath(config, "solver.prototxt"), beside);
  EXPECT_EQ(ResolvePath(config, "/no/such/file"), "/no/such/file");
  EXPECT_THAT(MessageOf<ConfigError>([&] { ResolvePath(config, "net.prototxt"); }),
              HasSubstr("there is no file net.prototxt in the working directory, " +
                        std::filesystem::current_path().string() + ", nor " +
                        directory_.Path("net.prototxt")));
}

}  // namespace
}  // namespace poseidon
