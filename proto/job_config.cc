#include "proto/job_config.h"

#include <xxhash.h>

#include <cstdio>
#include <filesystem>
#include <limits>

#include "core/error.h"
#include "core/named_file.h"
#include "core/units.h"
#include "proto/compatibility.h"
#include "proto/text_format.h"

namespace poseidon {
namespace {

// A server keeps a sum of gradients for each iteration that it may gather at the same time.
constexpr double kMostStaleness = 100;
constexpr double kMaxInt32 = std::numeric_limits<int32_t>::max();

// "2" instead of "2.000000"
std::string Text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", value);
  return text;
}

class Checker {
 public:
  Checker(const Job& job, const TextLocations& locations) : job_(job), locations_(locations) {}

  void Check() const {
    CheckClusterAndCommunication();
    CheckTraining();
  }

  void CheckClusterAndCommunication() const {
    CheckCluster();
    CheckNetwork();
    CheckTiers();
    CheckDevices();
    CheckCommunication();
    CheckCombinations();
  }

 private:
  [[noreturn]] void Fail(const std::string& field, const std::string& message) const {
    const Location where = locations_.Find(job_, field);
    if (where.file.empty()) throw ConfigError(message);
    throw ConfigError(where, message);
  }

  void Range(const std::string& field, double value, double least, double most) const {
    if (value >= least && value <= most) return;
    Fail(field, field + " is " + Text(value) + "; it must be between " + Text(least) + " and " +
                    Text(most));
  }

  void CheckCluster() const {
    const Cluster& cluster = job_.cluster();
    // Ranks are 32-bit numbers; what a cluster can really have is far below.
    Range("cluster.workers", cluster.workers(), 1, 1000000);
    Range("cluster.servers", cluster.servers(), 1, 1000000);
    Range("cluster.scheduler_port", cluster.scheduler_port(), 1, 65534);
    Range("cluster.join_deadline_seconds", cluster.join_deadline_seconds(), 0.1, 1e6);
    if (cluster.scheduler_host().empty()) {
      Fail("cluster.scheduler_host",
           "cluster.scheduler_host is empty; it must name the scheduler's machine");
    }
  }

  // What `parse` refuses is said with the place of the field.
  template <typename Parse>
  auto Quantity(const std::string& field, const std::string& text, Parse parse) const {
    try {
      return parse(text);
    } catch (const ConfigError& error) {
      Fail(field, field + ": " + error.what());
    }
  }

  void AboveZero(const std::string& field, double value) const {
    if (!(value > 0)) Fail(field, field + " is " + Text(value) + "; it must be above 0");
  }

  // A rate that is given and at which something moves.
  void BitRate(const std::string& field, const std::string& text) const {
    if (Quantity(field, text, ParseBitRate) == 0) Fail(field, field + " is 0; it must be more");
  }

  void CheckTiers() const {
    const Network& network = job_.cluster().network();
    for (int i = 0; i < network.tier_size(); ++i) {
      const std::string tier = "cluster.network.tier." + std::to_string(i) + ".";
      Range(tier + "members", network.tier(i).members(), 1, kMaxInt32);
      if (!network.tier(i).has_bandwidth()) {
        Fail(tier + "bandwidth", tier + "bandwidth is missing; say what the tier's uplink carries");
      }
      BitRate(tier + "bandwidth", network.tier(i).bandwidth());
      Quantity(tier + "latency", network.tier(i).latency(), ParseDuration);
    }
  }

  void CheckDevices() const {
    const Cluster& cluster = job_.cluster();
    // More than any machine has; times the workers it is still an int.
    Range("cluster.devices_per_worker", cluster.devices_per_worker(), 1, 1024);
    BitRate("cluster.device_bandwidth", cluster.device_bandwidth());
    if (cluster.has_copy_bandwidth()) BitRate("cluster.copy_bandwidth", cluster.copy_bandwidth());
  }

  void CheckNetwork() const {
    AboveZero("cluster.flops", job_.cluster().flops());
    AboveZero("cluster.reduction_rate", job_.cluster().reduction_rate());
    AboveZero("cluster.update_rate", job_.cluster().update_rate());
    const Network& network = job_.cluster().network();
    BitRate("cluster.network.bandwidth", network.bandwidth());
    Quantity("cluster.network.latency", network.latency(), ParseDuration);
    Quantity("cluster.network.message_cost", network.message_cost(), ParseDuration);
    if (!(network.goodput_share() > 0 && network.goodput_share() <= 1)) {
      Fail("cluster.network.goodput_share", "cluster.network.goodput_share is " +
                                                Text(network.goodput_share()) +
                                                "; it must be above 0 and at most 1");
    }
  }

  void CheckCombinations() const {
    const std::vector<Refusal> refusals = Refusals(job_);
    if (!refusals.empty()) Fail(refusals.front().field, refusals.front().reason);
  }

  void CheckCommunication() const {
    const Communication& communication = job_.communication();
    Range("communication.kv_pair_bytes", static_cast<double>(communication.kv_pair_bytes()), 4,
          536870912);
    if (communication.kv_pair_bytes() % 4 != 0) {
      Fail("communication.kv_pair_bytes", "communication.kv_pair_bytes is " +
                                              std::to_string(communication.kv_pair_bytes()) +
                                              "; it must be a multiple of 4, the size of a float");
    }
    Range("communication.lanes", communication.lanes(), 1, 64);
    Range("communication.window_bytes", static_cast<double>(communication.window_bytes()), 1, 1e12);
    Range("communication.heartbeat_interval_seconds", communication.heartbeat_interval_seconds(),
          0.01, 3600);
    const double interval = communication.heartbeat_interval_seconds();
    // In this form a NaN is refused, too.
    if (!(communication.heartbeat_deadline_seconds() >= 3 * interval)) {
      Fail("communication.heartbeat_deadline_seconds",
           "communication.heartbeat_deadline_seconds is " +
               Text(communication.heartbeat_deadline_seconds()) +
               "; it must be at least three heartbeat intervals, " + Text(3 * interval));
    }
    Range("communication.heartbeat_deadline_seconds", communication.heartbeat_deadline_seconds(),
          3 * interval, 1e6);
    Range("communication.stall_deadline_seconds", communication.stall_deadline_seconds(), 0.1, 1e6);
    if (!(communication.top_k_share() > 0 && communication.top_k_share() <= 1)) {
      Fail("communication.top_k_share", "communication.top_k_share is " +
                                            Text(communication.top_k_share()) +
                                            "; it must be above 0 and at most 1");
    }
    Range("communication.staleness", communication.staleness(), -1, kMostStaleness);
    Range("communication.bucket_bytes", static_cast<double>(communication.bucket_bytes()), 0,
          536870912);
  }

  void CheckTraining() const {
    const Training& training = job_.training();
    if (training.has_iterations() && training.iterations() < 1) {
      Fail("training.iterations", "training.iterations is " +
                                      std::to_string(training.iterations()) +
                                      "; it must be at least 1");
    }
    if (training.has_batch_per_worker() && training.batch_per_worker() < 1) {
      Fail("training.batch_per_worker", "training.batch_per_worker is " +
                                            std::to_string(training.batch_per_worker()) +
                                            "; it must be at least 1");
    }
    Range("training.threads", training.threads(), 0, 4096);
    CheckDevice(training);
    if (training.engine() == Training::REPLAY && training.replay().layers_size() == 0) {
      Fail("training", "training.engine is REPLAY, but training.replay has no layers");
    }
    CheckLargeBatch(training.large_batch());
    Range("training.replay.iterations", training.replay().iterations(), 1, kMaxInt32);
    Range("training.replay.batch", training.replay().batch(), 1, kMaxInt32);
  }

  void CheckDevice(const Training& training) const {
    const int devices = job_.cluster().devices_per_worker();
    if (training.has_batch_per_worker() && training.batch_per_worker() % devices != 0) {
      Fail("training.batch_per_worker",
           "training.batch_per_worker is " + std::to_string(training.batch_per_worker()) +
               ", which the " + std::to_string(devices) +
               " devices of a worker (cluster.devices_per_worker) can't share equally");
    }
    if (training.engine() == Training::REPLAY && training.device() != Training::CPU) {
      Fail("training.device",
           "training.device is CUDA, but training.engine is REPLAY, which computes nothing");
    }
    if (training.engine() == Training::REPLAY && training.precision() != Training::FLOAT32) {
      Fail("training.precision",
           "training.precision is not FLOAT32, but training.engine is REPLAY, which computes "
           "nothing");
    }
    if (training.precision() == Training::FLOAT16 && training.device() != Training::CUDA) {
      Fail("training.precision",
           "training.precision is FLOAT16, which works with training.device CUDA; on a CPU take "
           "FLOAT32 or BFLOAT16");
    }
    if (training.has_loss_scale() && training.precision() != Training::FLOAT16) {
      Fail("training.loss_scale", "training.loss_scale is for training.precision FLOAT16");
    }
    // Above it the inverse is no normal float32.
    const float initial = training.loss_scale().initial();
    if (!(initial > 0 && initial <= 0x1p126F)) {
      Fail("training.loss_scale.initial", "training.loss_scale.initial is " + Text(initial) +
                                              "; it must be above 0 and at most 2^126");
    }
    Range("training.loss_scale.growth_interval", training.loss_scale().growth_interval(), 1,
          kMaxInt32);
  }

  void CheckLargeBatch(const LargeBatch& recipe) const {
    const std::string field = "training.large_batch.";
    constexpr double kMany = 1e15;
    if (recipe.has_reference_batch()) {
      Range(field + "reference_batch", static_cast<double>(recipe.reference_batch()), 1, kMany);
    }
    if (recipe.has_warmup_iterations()) {
      Range(field + "warmup_iterations", static_cast<double>(recipe.warmup_iterations()), 1, kMany);
    }
    if (recipe.has_warmup_base_lr()) {
      Range(field + "warmup_base_lr", recipe.warmup_base_lr(), 0, kMany);
      if (!recipe.has_warmup_iterations()) {
        Fail(field + "warmup_base_lr", field + "warmup_base_lr needs warmup_iterations");
      }
    }
    int64_t before = 0;
    for (int i = 0; i < recipe.batch_growth_size(); ++i) {
      const std::string entry = field + "batch_growth." + std::to_string(i) + ".";
      const BatchGrowth& growth = recipe.batch_growth(i);
      if (growth.iteration() <= before) {
        Fail(entry + "iteration", entry + "iteration is " + std::to_string(growth.iteration()) +
                                      "; it must be above " + std::to_string(before));
      }
      before = growth.iteration();
      Range(entry + "factor", growth.factor(), 1, 1e6);
    }
    if (!(recipe.label_smoothing() >= 0 && recipe.label_smoothing() < 1)) {
      Fail(field + "label_smoothing", field + "label_smoothing is " +
                                          Text(recipe.label_smoothing()) +
                                          "; it must be at least 0 and below 1");
    }
    if (!recipe.has_lars()) return;
    if (!(recipe.lars().trust_coefficient() > 0)) {
      Fail(field + "lars.trust_coefficient", field + "lars.trust_coefficient must be above 0");
    }
    if (!(recipe.lars().epsilon() >= 0)) {
      Fail(field + "lars.epsilon", field + "lars.epsilon must not be negative");
    }
  }

  const Job& job_;
  const TextLocations& locations_;
};

// Checks a config that has been read and fills in the rest.
void Complete(const TextLocations& locations, JobConfig& config) {
  Checker(config.job, locations).Check();
  config.training = locations.Find(config.job, "training");
  const std::string text = config.job.ShortDebugString();
  config.fingerprint = XXH3_64bits(text.data(), text.size());
}

}  // namespace

JobConfig ReadJobConfig(const std::string& path) {
  if (path.empty()) throw ConfigError("--config is missing; name a job config");
  JobConfig config;
  config.path = path;
  Complete(ReadTextFile(path, config.job), config);
  return config;
}

JobConfig ParseJobConfig(const std::string& text, const std::string& name) {
  JobConfig config;
  config.path = name;
  Complete(ParseText(text, name, config.job), config);
  return config;
}

void CheckClusterAndCommunication(const Job& job) {
  const TextLocations nowhere;
  Checker(job, nowhere).CheckClusterAndCommunication();
}

bool MeasuresLinks(const Job& job) {
  return job.communication().policy() == Communication::TIME && !job.cluster().has_network() &&
         job.cluster().workers() > 1;
}

std::string ResolvePath(const std::string& named_in, const std::string& path) {
  namespace fs = std::filesystem;
  if (fs::path(path).is_absolute()) return path;
  if (const auto found = FindNamedFile(named_in, path)) return *found;
  throw ConfigError(named_in + ": there is no file " + path + " in the working directory, nor " +
                    (fs::path(named_in).parent_path() / path).string() +
                    ", nor in a directory above that file's");
}

std::string SolverPath(const JobConfig& config) {
  if (config.job.training().solver().empty()) {
    throw ConfigError(config.training,
                      "training.solver is missing; name a Caffe solver prototxt, or set engine: "
                      "REPLAY and a replay");
  }
  return ResolvePath(config, config.job.training().solver());
}

std::string ResolvePath(const JobConfig& config, const std::string& path) {
  return ResolvePath(config.path, path);
}

}  // namespace poseidon
