#include "proto/job_check.h"

#include <cstdio>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/net/ip_networks.h"
#include "proto/cluster_rates.h"
#include "proto/compatibility.h"
#include "proto/job_fields.h"
#include "proto/replay_model.h"

namespace poseidon {
namespace {

// A server keeps a sum of gradients for each iteration that it may gather at the same time.
constexpr double kMostStaleness = 100;
constexpr double kMaxInt32 = std::numeric_limits<int32_t>::max();
// Ranks are 32-bit numbers; what a cluster can really have is far below.
constexpr double kMostMachines = 1e6;

// Machines, the network between them, and the devices in them.
class ClusterChecker {
 public:
  explicit ClusterChecker(const JobFields& fields) : fields_(fields) {}

  void Check() const {
    CheckNodes();
    CheckNetwork();
    CheckTiers();
    CheckDevices();
    CheckDisturbance();
    CheckDeviations();
  }

 private:
  const Job& job() const { return fields_.job(); }

  void CheckNodes() const {
    const Cluster& cluster = job().cluster();
    fields_.CheckRange("cluster.workers", cluster.workers(), 1, kMostMachines);
    fields_.CheckRange("cluster.servers", cluster.servers(), 1, kMostMachines);
    fields_.CheckRange("cluster.scheduler_port", cluster.scheduler_port(), 1, 65534);
    fields_.CheckRange("cluster.join_deadline_seconds", cluster.join_deadline_seconds(), 0.1, 1e6);
    if (cluster.scheduler_host().empty()) {
      fields_.Fail("cluster.scheduler_host",
                   "cluster.scheduler_host is empty; it must name the scheduler's machine");
    }
  }

  void CheckTiers() const {
    const Network& network = job().cluster().network();
    for (int i = 0; i < network.tier_size(); ++i) {
      const std::string tier = "cluster.network.tier." + std::to_string(i) + ".";
      fields_.CheckRange(tier + "members", network.tier(i).members(), 1, kMostMachines);
      if (!network.tier(i).has_bandwidth()) {
        fields_.Fail(tier + "bandwidth",
                     tier + "bandwidth is missing; say what the tier's uplink carries");
      }
      fields_.CheckRate(CheckBitRate, tier + "bandwidth", network.tier(i).bandwidth());
      fields_.CheckRate(CheckGoodput, "cluster.network.goodput_share", network.goodput_share(),
                        network.tier(i).bandwidth());
      fields_.CheckRate(CheckDelay, tier + "latency", network.tier(i).latency());
    }
  }

  void CheckDevices() const {
    const Cluster& cluster = job().cluster();
    // More than any machine has; times the workers it is still an int.
    fields_.CheckRange("cluster.devices_per_worker", cluster.devices_per_worker(), 1, 1024);
    fields_.CheckRange("cluster.cores", cluster.cores(), 1, 65536);
    fields_.CheckRate(CheckBitRate, "cluster.device_bandwidth", cluster.device_bandwidth());
    if (cluster.has_copy_bandwidth())
      fields_.CheckRate(CheckBitRate, "cluster.copy_bandwidth", cluster.copy_bandwidth());
  }

  void CheckDisturbance() const {
    const Disturbance& disturbance = job().cluster().disturbance();
    const std::string field = "cluster.disturbance.";
    fields_.CheckRange(field + "iteration_spread", disturbance.iteration_spread(), 0, 1);
    fields_.CheckRange(field + "layer_spread", disturbance.layer_spread(), 0, 1);
    fields_.CheckRate(CheckDelay, field + "layer_cost", disturbance.layer_cost());
    const double interval = disturbance.stall_interval_seconds();
    if (disturbance.has_stall_interval_seconds() && interval != 0) {
      fields_.CheckRange(field + "stall_interval_seconds", interval, 1e-3, 1e6);
    }
    if (interval == 0 && disturbance.stall_seconds() != 0) {
      fields_.Fail(field + "stall_seconds",
                   field +
                       "stall_seconds is set; say with stall_interval_seconds how far apart "
                       "stalls are");
    }
    fields_.CheckRange(field + "stall_seconds", disturbance.stall_seconds(), 0, interval);
  }

  void CheckDeviations() const {
    const Cluster& cluster = job().cluster();
    std::set<int> workers;
    for (int i = 0; i < cluster.deviation_size(); ++i) {
      const Deviation& deviation = cluster.deviation(i);
      const std::string at = "cluster.deviation." + std::to_string(i);
      if (!deviation.has_worker()) {
        fields_.Fail(at, at + " names no worker; say whose machine is not as the others");
      }
      fields_.CheckRange(at + ".worker", deviation.worker(), 0, cluster.workers() - 1);
      if (!workers.insert(deviation.worker()).second) {
        fields_.Fail(at + ".worker", at + ".worker: worker " + std::to_string(deviation.worker()) +
                                         " is there twice; say all of it in one deviation");
      }
      fields_.CheckRate(CheckComputeFactor, at + ".compute_factor", deviation.compute_factor());
      if (!deviation.has_bandwidth()) continue;
      fields_.CheckRate(CheckBitRate, at + ".bandwidth", deviation.bandwidth());
      fields_.CheckRate(CheckGoodput, "cluster.network.goodput_share",
                        cluster.network().goodput_share(), deviation.bandwidth());
    }
  }

  void CheckNetwork() const {
    const Cluster& cluster = job().cluster();
    fields_.CheckRate(CheckOperationRate, "cluster.flops", cluster.flops());
    fields_.CheckRate(CheckByteRate, "cluster.reduction_rate", cluster.reduction_rate());
    fields_.CheckRate(CheckByteRate, "cluster.update_rate", cluster.update_rate());
    fields_.CheckRate(CheckByteRate, "cluster.device_update_rate", cluster.device_update_rate());
    const Network& network = cluster.network();
    fields_.CheckRate(CheckBitRate, "cluster.network.bandwidth", network.bandwidth());
    fields_.CheckRate(CheckDelay, "cluster.network.latency", network.latency());
    fields_.CheckRate(CheckDelay, "cluster.network.message_cost", network.message_cost());
    fields_.CheckRate(CheckGoodput, "cluster.network.goodput_share", network.goodput_share(),
                      network.bandwidth());
  }

  const JobFields& fields_;
};

// Who may take part.
class SecurityChecker {
 public:
  explicit SecurityChecker(const JobFields& fields) : fields_(fields) {}

  void Check() const {
    const Security& security = fields_.job().security();
    if (security.mode() == Security::CURVE && security.key_file().empty() &&
        security.key().empty()) {
      fields_.Fail("security.mode",
                   "security.mode is CURVE, and security.key_file is missing; make a key with "
                   "`poseidon keys --out=DIR` and name its file");
    }
    if (security.has_key_file() && security.key_file().empty()) {
      fields_.Fail("security.key_file",
                   "security.key_file is empty; make a key with `poseidon keys --out=DIR` and name "
                   "its file, or leave the field out");
    }
    if (security.has_mode() && security.mode() == Security::NONE &&
        (security.has_key_file() || security.has_key())) {
      fields_.Fail("security.mode",
                   "security.mode is NONE, and there is a key, which would not be used; leave one "
                   "of them out");
    }
    if (security.has_key_file() && security.has_key()) {
      fields_.Fail("security.key",
                   "there are both security.key_file and security.key; leave one out");
    }
    for (int i = 0; i < security.allow_size(); ++i) {
      fields_.CheckRate(
          [](const std::string&, const std::string& network) { IpNetworks({network}); },
          "security.allow." + std::to_string(i), security.allow(i));
    }
  }

 private:
  const JobFields& fields_;
};

// How nodes exchange gradients and values.
class CommunicationChecker {
 public:
  explicit CommunicationChecker(const JobFields& fields) : fields_(fields) {}

  void Check() const {
    const Communication& communication = fields_.job().communication();
    fields_.CheckRange("communication.kv_pair_bytes",
                       static_cast<double>(communication.kv_pair_bytes()), 4, 536870912);
    if (communication.kv_pair_bytes() % 4 != 0) {
      fields_.Fail("communication.kv_pair_bytes",
                   "communication.kv_pair_bytes is " +
                       std::to_string(communication.kv_pair_bytes()) +
                       "; it must be a multiple of 4, the size of a float");
    }
    fields_.CheckRange("communication.lanes", communication.lanes(), 1, 64);
    fields_.CheckRange("communication.window_bytes",
                       static_cast<double>(communication.window_bytes()), 1, 1e12);
    CheckDeadlines(communication);
    fields_.CheckShare("communication.top_k_share", communication.top_k_share());
    fields_.CheckRange("communication.staleness", communication.staleness(), -1, kMostStaleness);
    fields_.CheckRange("communication.bucket_bytes",
                       static_cast<double>(communication.bucket_bytes()), 0, 536870912);
  }

 private:
  void CheckDeadlines(const Communication& communication) const {
    fields_.CheckRange("communication.heartbeat_interval_seconds",
                       communication.heartbeat_interval_seconds(), 0.01, 3600);
    const double interval = communication.heartbeat_interval_seconds();
    // In this form a NaN is refused, too.
    if (!(communication.heartbeat_deadline_seconds() >= 3 * interval)) {
      fields_.Fail("communication.heartbeat_deadline_seconds",
                   "communication.heartbeat_deadline_seconds is " +
                       NumberText(communication.heartbeat_deadline_seconds()) +
                       "; it must be at least three heartbeat intervals, " +
                       NumberText(3 * interval));
    }
    fields_.CheckRange("communication.heartbeat_deadline_seconds",
                       communication.heartbeat_deadline_seconds(), 3 * interval, 1e6);
    fields_.CheckRange("communication.stall_deadline_seconds",
                       communication.stall_deadline_seconds(), 0.1, 1e6);
    const int steps = communication.local_steps();
    fields_.CheckRange("communication.local_steps", steps, 1, 1000000);
    const bool local = steps > 1;
    if (!local && (communication.fragments() != 1 || communication.overlap_steps() != 0)) {
      const std::string field = communication.fragments() != 1 ? "fragments" : "overlap_steps";
      fields_.Fail("communication." + field,
                   "communication." + field + " is for communication.local_steps above 1");
    }
    fields_.CheckRange("communication.fragments", communication.fragments(), 1, steps);
    const int between_fragments = steps / communication.fragments();
    fields_.CheckRange("communication.overlap_steps", communication.overlap_steps(), 0,
                       between_fragments - 1);
  }

  const JobFields& fields_;
};

// What is trained.
class TrainingChecker {
 public:
  explicit TrainingChecker(const JobFields& fields) : fields_(fields) {}

  void Check() const {
    const Training& training = fields_.job().training();
    if (training.has_iterations()) {
      fields_.CheckPositive("training.iterations", training.iterations());
      // Caffe's snapshots have 32 bits for it.
      fields_.CheckRange("training.iterations", static_cast<double>(training.iterations()), 1,
                         kMaxInt32);
    }
    if (training.has_batch_per_worker()) {
      fields_.CheckPositive("training.batch_per_worker", training.batch_per_worker());
    }
    CheckWeights(training);
    CheckParts(training);
    fields_.CheckRange("training.threads", training.threads(), 0, 4096);
    CheckDevice(training);
    if (training.engine() == Training::REPLAY && training.replay().layers_size() == 0) {
      fields_.Fail("training", "training.engine is REPLAY, but training.replay has no layers");
    }
    CheckLargeBatch(training.large_batch());
    fields_.CheckRange("training.replay.iterations", training.replay().iterations(), 1, kMaxInt32);
    fields_.CheckRange("training.replay.batch", training.replay().batch(), 1, kMaxInt32);
    if (training.engine() == Training::REPLAY) CheckReplay(training.replay());
  }

 private:
  // Else the solver's own would be set aside for nothing, as those of an empty entry are.
  void CheckWeights(const Training& training) const {
    for (int i = 0; i < training.weights_size(); ++i) {
      const std::string& entry = training.weights(i);
      if (entry.empty() || entry.find_first_not_of(", \t") != std::string::npos) continue;
      fields_.Fail("training.weights." + std::to_string(i),
                   "training.weights names no file; write paths, comma separated");
    }
  }

  void CheckParts(const Training& training) const {
    if (training.part().empty()) return;
    const auto fail = [this](const std::string& why) { fields_.Fail("training.part.0", why); };
    if (training.batch() != Training::BALANCED) {
      fail("training.part is for training.batch BALANCED; add that, or leave the parts out");
    }
    const int workers = fields_.job().cluster().workers();
    if (training.part_size() != workers) {
      fail("training.part has " + std::to_string(training.part_size()) +
           " entries; it needs one for each of the " + std::to_string(workers) +
           " workers (cluster.workers)");
    }
    const bool replays = training.engine() == Training::REPLAY;
    if (!replays && !training.has_batch_per_worker()) {
      fail("training.part needs training.batch_per_worker, the mean of the parts");
    }
    int64_t sum = 0;
    for (int i = 0; i < training.part_size(); ++i) {
      fields_.CheckPositive("training.part." + std::to_string(i), training.part(i));
      sum += training.part(i);
    }
    const int64_t all =
        int64_t{workers} * (replays ? training.replay().batch() : training.batch_per_worker());
    if (sum != all) {
      fail("training.part has " + std::to_string(sum) + " samples together; the " +
           std::to_string(workers) + " workers' batch has " + std::to_string(all));
    }
  }

  void CheckDevice(const Training& training) const {
    const int devices = fields_.job().cluster().devices_per_worker();
    if (training.has_batch_per_worker() && training.batch_per_worker() % devices != 0) {
      fields_.Fail("training.batch_per_worker",
                   "training.batch_per_worker is " + std::to_string(training.batch_per_worker()) +
                       ", which the " + std::to_string(devices) +
                       " devices of a worker (cluster.devices_per_worker) can't share equally");
    }
    if (training.engine() == Training::REPLAY && training.device() != Training::CPU) {
      fields_.Fail(
          "training.device",
          "training.device is CUDA, but training.engine is REPLAY, which computes nothing");
    }
    if (training.engine() == Training::REPLAY && training.precision() != Training::FLOAT32) {
      fields_.Fail(
          "training.precision",
          "training.precision is not FLOAT32, but training.engine is REPLAY, which computes "
          "nothing");
    }
    const bool of_gpus =
        training.precision() == Training::FLOAT16 || training.precision() == Training::TF32;
    if (of_gpus && training.device() != Training::CUDA) {
      fields_.Fail("training.precision",
                   "training.precision is " + Training::Precision_Name(training.precision()) +
                       ", which works with training.device CUDA; on a CPU take FLOAT32 or "
                       "BFLOAT16");
    }
    CheckLossScale(training);
  }

  void CheckReplay(const Replay& replay) const {
    const auto check = [&](const std::string& /*field*/) { ValidateReplay(replay); };
    fields_.CheckRate(check, "training.replay");
    const int devices = fields_.job().cluster().devices_per_worker();
    if (devices == 1) return;
    fields_.Fail("cluster.devices_per_worker",
                 "cluster.devices_per_worker is " + std::to_string(devices) +
                     ", but training.engine is REPLAY, which computes nothing; with it several "
                     "devices are for predictions and simulations. Replay a worker for each "
                     "device, or set it to 1");
  }

  void CheckLossScale(const Training& training) const {
    if (training.has_loss_scale() && training.precision() != Training::FLOAT16) {
      fields_.Fail("training.loss_scale", "training.loss_scale is for training.precision FLOAT16");
    }
    // Above it the inverse is no normal float32.
    const float initial = training.loss_scale().initial();
    if (!(initial > 0 && initial <= 0x1p126F)) {
      fields_.Fail("training.loss_scale.initial", "training.loss_scale.initial is " +
                                                      NumberText(initial) +
                                                      "; it must be above 0 and at most 2^126");
    }
    fields_.CheckRange("training.loss_scale.growth_interval",
                       training.loss_scale().growth_interval(), 1, kMaxInt32);
  }

  void CheckLargeBatch(const LargeBatch& recipe) const {
    const std::string field = "training.large_batch.";
    constexpr double kMany = 1e15;
    if (recipe.has_reference_batch()) {
      fields_.CheckRange(field + "reference_batch", static_cast<double>(recipe.reference_batch()),
                         1, kMany);
    }
    if (recipe.has_warmup_iterations()) {
      fields_.CheckRange(field + "warmup_iterations",
                         static_cast<double>(recipe.warmup_iterations()), 1, kMany);
    }
    if (recipe.has_warmup_base_lr()) {
      fields_.CheckRange(field + "warmup_base_lr", recipe.warmup_base_lr(), 0, kMany);
      if (!recipe.has_warmup_iterations()) {
        fields_.Fail(field + "warmup_base_lr", field + "warmup_base_lr needs warmup_iterations");
      }
    } else if (recipe.has_warmup_iterations() && !recipe.has_reference_batch()) {
      fields_.Fail(field + "warmup_iterations",
                   field +
                       "warmup_iterations needs warmup_base_lr, or reference_batch, which scales "
                       "the rate that the solver's base_lr warms up to");
    }
    CheckBatchGrowth(recipe);
    if (!(recipe.label_smoothing() >= 0 && recipe.label_smoothing() < 1)) {
      fields_.Fail(field + "label_smoothing", field + "label_smoothing is " +
                                                  NumberText(recipe.label_smoothing()) +
                                                  "; it must be at least 0 and below 1");
    }
    if (!recipe.has_lars()) return;
    if (!(recipe.lars().trust_coefficient() > 0)) {
      fields_.Fail(field + "lars.trust_coefficient",
                   field + "lars.trust_coefficient must be above 0");
    }
    if (!(recipe.lars().epsilon() >= 0)) {
      fields_.Fail(field + "lars.epsilon", field + "lars.epsilon must not be negative");
    }
  }

  void CheckBatchGrowth(const LargeBatch& recipe) const {
    int64_t before = 0;
    for (int i = 0; i < recipe.batch_growth_size(); ++i) {
      const std::string entry = "training.large_batch.batch_growth." + std::to_string(i) + ".";
      const BatchGrowth& growth = recipe.batch_growth(i);
      if (growth.iteration() <= before) {
        fields_.Fail(entry + "iteration", entry + "iteration is " +
                                              std::to_string(growth.iteration()) +
                                              "; it must be above " + std::to_string(before));
      }
      before = growth.iteration();
      fields_.CheckRange(entry + "factor", growth.factor(), 1, 1e6);
    }
  }

  const JobFields& fields_;
};

void CheckElastic(const Job& job, const JobFields& fields) {
  if (!job.has_elastic()) return;
  const Elastic& elastic = job.elastic();
  const int workers = job.cluster().workers();
  fields.CheckRange("elastic.min_workers", elastic.min_workers(), 1, workers);
  if (elastic.has_max_workers()) {
    fields.CheckRange("elastic.max_workers", elastic.max_workers(), workers, 1e6);
  }
  fields.CheckRange("elastic.regroup_interval_seconds", elastic.regroup_interval_seconds(), 0, 1e6);
}

void CheckSpares(const Recovery& recovery, const JobFields& fields) {
  fields.CheckRange("recovery.spare_workers", recovery.spare_workers(), 0, 1e6);
  fields.CheckRange("recovery.spare_servers", recovery.spare_servers(), 0, 1e6);
}

}  // namespace

void CheckClusterAndCommunication(const Job& job, const TextLocations& locations) {
  const JobFields fields(job, locations);
  const Recovery& recovery = job.recovery();
  if (job.has_recovery() && !recovery.has_mode()) {
    fields.Fail(
        "recovery",
        "recovery.mode is not given, so nothing is recovered; add mode: REPLACE, or mode: NONE");
  }
  fields.CheckRange("recovery.replacement_deadline_seconds",
                    recovery.replacement_deadline_seconds(), 0.1, 1e6);
  fields.CheckRange("recovery.scheduler_deadline_seconds", recovery.scheduler_deadline_seconds(),
                    0.1, 1e6);
  fields.CheckRange("recovery.give_up_after", recovery.give_up_after(), 1, 1e6);
  CheckSpares(recovery, fields);
  CheckElastic(job, fields);
  ClusterChecker(fields).Check();
  CommunicationChecker(fields).Check();
  SecurityChecker(fields).Check();
  const std::vector<Refusal> refusals = Refusals(job);
  if (!refusals.empty()) fields.Fail(refusals.front().field, refusals.front().reason);
}

void CheckName(const Job& job, const TextLocations& locations) {
  for (const unsigned char byte : job.name()) {
    if (byte >= ' ' && byte != 0x7f) continue;
    char text[5];
    std::snprintf(text, sizeof text, "\\x%02x", byte);
    JobFields(job, locations)
        .Fail("name", "name has the control character " + std::string(text) +
                          ", and logs and scripts of batch systems have it in one line; remove the "
                          "character");
  }
}

void CheckMonitor(const Job& job, const TextLocations& locations) {
  const JobFields fields(job, locations);
  const Monitor& monitor = job.monitor();
  fields.CheckRange("monitor.port", monitor.port(), 0, 65535);
  const int nodes_port = job.cluster().scheduler_port();
  // `poseidon run` finds ports for the nodes where none is set.
  if (job.has_monitor() && job.cluster().has_scheduler_port() &&
      (monitor.port() == nodes_port || monitor.port() == nodes_port + 1)) {
    fields.Fail("monitor.port", "monitor.port is " + std::to_string(monitor.port()) +
                                    ", at which the scheduler listens for its nodes "
                                    "(cluster.scheduler_port is " +
                                    std::to_string(nodes_port) +
                                    ", and it takes the next port, too); give one of them another "
                                    "port");
  }
  fields.CheckRange("monitor.node_port", monitor.node_port(), 0, 65535);
  if (monitor.address().empty()) {
    fields.Fail("monitor.address", "monitor.address is empty; name the address to listen on");
  }
  if (IsLoopbackName(monitor.address()) || !monitor.token_file().empty()) return;
  fields.Fail("monitor.address",
              "monitor.address is \"" + monitor.address() +
                  "\", which other machines reach, but there is no monitor.token_file; name a file "
                  "with a token, or leave the address out and use an ssh tunnel");
}

void CheckTraining(const Job& job, const TextLocations& locations) {
  TrainingChecker(JobFields(job, locations)).Check();
}

}  // namespace poseidon
