#include "proto/compatibility.h"

#include <cstdint>

#include "proto/bucket.h"
#include "proto/plan_members.h"

namespace poseidon {
namespace {

class CompatibilityCheck {
 public:
  explicit CompatibilityCheck(const Job& job) : job_(job), communication_(job.communication()) {}

  std::vector<Refusal> Find() {
    CheckCodec();
    CheckUpdate();
    CheckStaleness();
    CheckLars();
    CheckLocalSteps();
    CheckDeterminism();
    CheckGrid();
    CheckRecovery();
    CheckSpares();
    CheckOtherwise();
    CheckElastic();
    CheckBalance();
    CheckReplay();
    return std::move(refusals_);
  }

 private:
  void Refuse(const std::string& field, const std::string& reason) {
    refusals_.push_back({"communication." + field, "communication." + field + ": " + reason});
  }

  void CheckCodec() {
    if (job_.training().precision() == Training::FLOAT16 && communication_.codec() == FP16) {
      Refuse("codec",
             "FP16 has no place for the small gradients that the loss scale of "
             "training.precision FLOAT16 saves, for the scale is taken out before they leave; "
             "use BF16, whose range is single precision's, or FP32");
    }
    const Scheme scheme = OnlyScheme(communication_.policy());
    if (scheme == SCHEME_UNSPECIFIED) return;
    const std::string reason = WhyNotCodec(scheme, communication_.codec());
    if (!reason.empty()) Refuse("codec", reason);
  }

  void CheckUpdate() {
    if (communication_.update_at() != Communication::SERVERS) return;
    if (communication_.codec() != FP32) {
      Refuse("update_at", "servers that apply the update send new values, and " +
                              CodecName(communication_.codec()) +
                              " would round those at every iteration; with a codec other than "
                              "FP32 use WORKERS or AUTOMATIC");
    }
    const Scheme scheme = OnlyScheme(communication_.policy());
    if (scheme != SCHEME_UNSPECIFIED && !UsesServers(scheme)) {
      Refuse("update_at", "policy " + Communication::Policy_Name(communication_.policy()) +
                              " uses no servers that could apply the update; use WORKERS or "
                              "AUTOMATIC");
    }
  }

  void CheckStaleness() {
    if (communication_.staleness() == 0) return;
    if (communication_.policy() != Communication::ALL_PS) {
      Refuse("staleness",
             "only parameter servers can hold values that are newer than some worker's; all "
             "other schemes make all workers wait for each other. Use policy ALL_PS, or 0");
    }
    if (communication_.codec() != FP32) {
      Refuse("staleness", "workers that differ in their iteration need the servers' values, and " +
                              CodecName(communication_.codec()) +
                              " has the workers apply the update; use codec FP32, or 0");
    }
    if (communication_.update_at() == Communication::WORKERS) {
      Refuse("staleness",
             "workers that differ in their iteration need the servers' values; use update_at "
             "SERVERS or AUTOMATIC, or 0");
    }
    if (communication_.staleness() < 0 && job_.training().large_batch().momentum_correction()) {
      Refuse("staleness",
             "each gradient is an update of its own with -1, and "
             "training.large_batch.momentum_correction would multiply the momentum as often as "
             "there are workers; switch that off, or use 0 or above");
    }
    if (communication_.deterministic()) {
      Refuse("staleness",
             "which gradients a worker's values hold depends on timing then, so no two runs are "
             "the same; switch deterministic off, or use 0");
    }
  }

  // What the workers do from the mean gradient of a whole layer.
  void CheckLars() {
    if (!job_.training().large_batch().has_lars()) return;
    const std::string instead =
        "with training.large_batch.lars the workers make the updates, from the gradients of all; "
        "leave lars out, or use ";
    if (communication_.staleness() != 0) Refuse("staleness", instead + "0");
    if (communication_.update_at() == Communication::SERVERS) {
      Refuse("update_at", instead + "WORKERS or AUTOMATIC");
    }
  }

  // Where workers train on their own between exchanges.
  void CheckLocalSteps() {
    if (communication_.local_steps() == 1) return;
    switch (communication_.policy()) {
      case Communication::ALL_PS:
      case Communication::ALL_RING:
      case Communication::ALL_HALVING_DOUBLING:
      case Communication::ALL_TORUS:
      case Communication::TIME:
        break;
      default:
        Refuse("policy",
               "what many steps have changed has no factors; with local_steps use TIME, ALL_PS, "
               "ALL_RING, ALL_HALVING_DOUBLING or ALL_TORUS");
    }
    if (communication_.staleness() != 0) {
      Refuse("staleness", "with local_steps all workers go on from the same parameters; use 0");
    }
    if (!communication_.overlap()) {
      Refuse("overlap",
             "with local_steps nothing is exchanged during a backward pass; leave it on");
    }
    if (job_.cluster().devices_per_worker() != 1) {
      refusals_.push_back(
          {"cluster.devices_per_worker",
           "cluster.devices_per_worker: with local_steps a worker's devices would still have to "
           "exchange every step; use 1, with a worker for each device"});
    }
    if (communication_.fragments() > 1 && communication_.bucket_bytes() > 0) {
      Refuse("bucket_bytes",
             "layers of one bucket would have to be in the same one of the fragments; use 0");
    }
  }

  void CheckDeterminism() {
    if (communication_.deterministic() && communication_.policy() == Communication::TIME &&
        !job_.cluster().has_network()) {
      Refuse("deterministic",
             "the plan of policy TIME, and with it the order of sums, would depend on what the "
             "network is measured to do; describe it in cluster.network, or choose another policy");
    }
  }

  void CheckGrid() {
    if (communication_.grid_size() == 0) return;
    int64_t product = 1;
    std::string sizes;
    for (int i = 0; i < communication_.grid_size(); ++i) {
      const int size = communication_.grid(i);
      if (size < 1) {
        return Refuse("grid", "a dimension of " + std::to_string(size) + " workers; at least 1");
      }
      product *= size;
      sizes += (sizes.empty() ? "" : " x ") + std::to_string(size);
      // More than there can be workers; and more dimensions would not fit the number.
      if (product > job_.cluster().workers()) break;
    }
    if (product == job_.cluster().workers()) return;
    Refuse("grid",
           sizes + " is not the number of workers, " + std::to_string(job_.cluster().workers()));
  }

  // What servers that update keep has a second server that keeps it, too (planner/backups.h).
  void CheckBackups() {
    if (!UpdatesAtServers(job_)) return;
    const bool balanced = job_.training().batch() == Training::BALANCED;
    const bool asked = communication_.update_at() == Communication::SERVERS;
    std::string instead = asked ? "use WORKERS or AUTOMATIC" : "use another policy";
    std::string reason;
    if (MayShrink(job_.recovery())) {
      reason =
          "the servers keep the optimizer state, and when one of them is lost it can't be "
          "shared out among those that SHRINK leaves";
    } else if (communication_.policy() == Communication::TIME || balanced) {
      reason =
          "the optimizer state that servers keep does not survive a loss while the job goes "
          "over to another plan, as it does with " +
          std::string(balanced ? "training.batch BALANCED" : "policy TIME");
    } else if (job_.cluster().servers() < 2) {
      reason = "the only server keeps the optimizer state, which would be lost with it";
      instead += ", or set cluster.servers to 2 or more";
    } else {
      return;
    }
    Refuse(asked ? "update_at" : "policy", reason + "; " + WithMode() + " " + instead);
  }

  // What a lost node must not be the only one to keep.
  void CheckRecovery() {
    if (job_.recovery().mode() == Recovery::NONE) return;
    CheckBackups();
    if (communication_.staleness() != 0) {
      Refuse("staleness",
             "workers that differ in their iteration have none to which all could go back; " +
                 WithMode() + " use 0");
    }
    if (MayShrink(job_.recovery()) && !communication_.grid().empty()) {
      Refuse("grid",
             "it is for one number of workers, which recovery by SHRINK changes when one is "
             "lost; leave it out, and a grid is chosen for each number");
    }
  }

  void CheckOtherwise() {
    const Recovery& recovery = job_.recovery();
    if (!recovery.has_otherwise()) return;
    const bool makes_sense = recovery.mode() == Recovery::REPLACE;
    if (makes_sense && recovery.otherwise() != Recovery::REPLACE) return;
    refusals_.push_back({"recovery.otherwise",
                         "recovery.otherwise: says what happens where nobody takes a lost one's "
                         "place under mode REPLACE: NONE, the job ends, or SHRINK, the others go "
                         "on without it" +
                             std::string(makes_sense ? "" : "; set that mode, or leave it out")});
  }

  void CheckSpares() {
    const Recovery& recovery = job_.recovery();
    if (recovery.mode() == Recovery::REPLACE) return;
    const char* field = nullptr;
    if (recovery.spare_servers() > 0) field = "recovery.spare_servers";
    if (recovery.spare_workers() > 0) field = "recovery.spare_workers";
    if (field == nullptr) return;
    refusals_.push_back({field, std::string(field) +
                                    ": only recovery.mode REPLACE gives a lost one's rank to "
                                    "another process; set that, or leave the field out"});
  }

  void CheckElastic() {
    if (!job_.has_elastic() || job_.recovery().mode() == Recovery::SHRINK) return;
    refusals_.push_back(
        {"elastic",
         "elastic: a job whose workers come and go is one that goes on with fewer when it loses "
         "some; add recovery { mode: SHRINK }"});
  }

  // What parts of a batch that differ, and change on the way, can't be.
  void CheckBalance() {
    const Training& training = job_.training();
    if (training.batch() != Training::BALANCED) return;
    const std::string balanced = "with training.batch BALANCED ";
    const auto refuse = [&](const std::string& field, const std::string& reason) {
      refusals_.push_back({field, field + ": " + reason});
    };
    if (communication_.staleness() != 0) {
      Refuse("staleness",
             "workers that differ in their iteration have no common batch to have "
             "parts of; " +
                 balanced + "use 0");
    }
    if (communication_.policy() == Communication::ALL_SFB ||
        communication_.policy() == Communication::ALL_ADAM) {
      Refuse("policy",
             "sufficient factors have a row for each sample, the same number at all "
             "workers; " +
                 balanced + "use another policy");
    }
    if (MayShrink(job_.recovery())) {
      refuse(job_.recovery().mode() == Recovery::SHRINK ? "recovery.mode" : "recovery.otherwise",
             "the parts are of one number of workers, which SHRINK changes when "
             "one is lost; " +
                 balanced + "use REPLACE or NONE");
    }
    if (job_.cluster().devices_per_worker() != 1) {
      refuse("cluster.devices_per_worker",
             "the devices of a worker have equal parts of its batch; " + balanced +
                 "start a worker for each device");
    }
    if (training.device() != Training::CPU) {
      refuse("training.device", "a net on a device keeps its batch size; " + balanced + "use CPU");
    }
  }

  // What says how to train would be ignored without a word.
  void CheckReplay() {
    const Training& training = job_.training();
    if (training.engine() != Training::REPLAY) return;
    const auto refuse_if = [&](bool given, const std::string& field, const std::string& instead) {
      if (!given) return;
      const std::string reason = ": training.engine is REPLAY, which computes nothing and would ";
      refusals_.push_back({field, field + reason + "ignore it; " + instead});
    };
    refuse_if(training.has_solver(), "training.solver",
              "leave it out, or set training.engine TORCH to train it");
    refuse_if(training.has_shuffle(), "training.shuffle", "leave it out");
    refuse_if(training.has_batch_per_worker(), "training.batch_per_worker",
              "set training.replay.batch");
    refuse_if(training.weights_size() > 0, "training.weights", "leave it out");
    refuse_if(training.has_snapshot(), "training.snapshot", "leave it out");
    refuse_if(training.has_large_batch(), "training.large_batch", "leave it out");
  }

  std::string WithMode() const {
    return "with recovery.mode " + Recovery::Mode_Name(job_.recovery().mode());
  }

  const Job& job_;
  const Communication& communication_;
  std::vector<Refusal> refusals_;
};

}  // namespace

bool UpdatesAtServers(const Job& job) {
  return job.communication().update_at() == Communication::SERVERS ||
         job.communication().policy() == Communication::ALL_ADAM;
}

Scheme OnlyScheme(Communication::Policy policy) {
  switch (policy) {
    case Communication::ALL_PS:
      return PS;
    case Communication::ALL_RING:
      return RING;
    case Communication::ALL_HALVING_DOUBLING:
      return HALVING_DOUBLING;
    case Communication::ALL_TORUS:
      return TORUS;
    default:
      return SCHEME_UNSPECIFIED;
  }
}

std::vector<Refusal> Refusals(const Job& job) { return CompatibilityCheck(job).Find(); }

std::string WhyNotCodec(Scheme scheme, WireCodec codec) {
  if (codec == FP32) return "";
  const bool lossy = NeedsErrorFeedback(codec);
  if (IsAllReduce(scheme) && lossy) {
    return CodecName(codec) + " cannot work with " + SchemeName(scheme) +
           ": partial sums would be rounded again at every hop, where nobody keeps the error to "
           "make up for it; use FP16, BF16, or parameter servers";
  }
  if (scheme == SFB && lossy) {
    return CodecName(codec) +
           " cannot work with SFB: the error of a factor is not an error of the gradient that "
           "could be made up for later; use FP16 or BF16";
  }
  if (scheme == ADAM) {
    return CodecName(codec) +
           " cannot work with Adam: its servers send new values, which would be rounded at every "
           "iteration; use FP32";
  }
  return "";
}

std::vector<int> SquareGrid(int workers) {
  int smaller = 1;
  for (int i = 2; static_cast<int64_t>(i) * i <= workers; ++i) {
    if (workers % i == 0) smaller = i;
  }
  if (smaller == 1) return {workers};
  return {smaller, workers / smaller};
}

}  // namespace poseidon
