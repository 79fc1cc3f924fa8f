#include "worker/worker_daemon.h"

#include <cblas.h>
#include <gflags/gflags.h>
#include <glog/logging.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "client/worker_session.h"
#include "core/end_deadline.h"
#include "core/error.h"
#include "core/files/directories.h"
#include "core/own_flags.h"
#include "core/program.h"
#include "proto/job_config.h"
#include "transport/monitor/node_monitor.h"
#include "worker/engine/balanced_batch.h"
#include "worker/engine/training_inputs.h"
#include "worker/recipe.h"
#include "worker/trainer.h"
#include "worker/worker_devices.h"

DEFINE_string(config, "",
              "The job config (docs/configuration.md); the same for all nodes. Of a job that "
              "`poseidon run` has started: job.prototxt in its output directory.");
DEFINE_int32(rank, -1, "This worker's rank, from 0; -1 takes whichever is free.");
DEFINE_int32(
    first_device, -1,
    "With training.device CUDA: the first of this worker's GPUs, from 0, the others follow; "
    "-1: the rank times cluster.devices_per_worker. Counted on from 0 after the machine's "
    "last.");
DEFINE_double(compute_factor, 1,
              "With engine REPLAY: this worker's computing takes so many times as long as the "
              "config says, which the planner does not know (cluster.deviation is what it knows).");
DEFINE_string(host, "",
              "Address at which other nodes reach this machine; empty: that of the interface which "
              "leads to the scheduler.");
DEFINE_uint64(incarnation, 0,
              "Number of this process, which no other of the job has; 0 draws one.");
DEFINE_uint64(
    replaces, 0,
    "In a job with `recovery`: the --incarnation of the dead process whose place this one "
    "takes, at once; 0: none is known to be dead.");
DEFINE_string(out, "",
              "Directory for worker-RANK.trace.json, if the config wants a trace, and "
              "worker-RANK.events.json, "
              "if it does or the job ends badly; made if it is not there.");

namespace poseidon {
namespace {

constexpr char kProgram[] = "poseidon_worker";

// Workers other than 0 may do without the files (worker/trainer.h).
std::optional<FoundSnapshot> FindStart(const EngineConfig& plan, int rank) {
  try {
    return plan.FindStart();
  } catch (const Error& error) {
    if (rank == 0) throw;
    LOG(INFO) << "no snapshot here: " << error.what();
    return std::nullopt;
  }
}

// What a training is made of, in the order in which it is made.
struct TrainingParts {
  std::vector<std::unique_ptr<Engine>> engines;
  TrainerOptions options;
  ModelSpec model;
  std::unique_ptr<WorkerNet> net;
};

// Who takes a lost one's place goes on where the others are, and may find the snapshot of the end.
// A job that goes on from its latest one ends well: whoever enters it again until it does so comes
// to an end, and a test behind the last iteration that a failure has cut off is done.
void TellIfNothingIsLeft(const Job& job, const TrainerOptions& options, WorkerSession& session) {
  if (!options.from || options.from->state.iteration < options.max_iter) return;
  if (!session.plan().holders().empty()) return;
  const std::string why = "nothing is left to do: " + options.from->path + " is of iteration " +
                          std::to_string(options.from->state.iteration) +
                          ", and training ends at " + std::to_string(options.max_iter) +
                          " (max_iter, or the job's training.iterations)";
  if (job.training().snapshot() != "latest") throw ConfigError(why);
  if (session.rank() == 0)
    session.Notify(why + "; the job ends after its last test, if it has one");
}

// Once: who takes a lost one's place goes on with a training that has begun.
void TellSurprises(const EngineConfig& plan, const std::optional<FoundSnapshot>& from,
                   WorkerSession& session) {
  if (session.rank() != 0 || !session.plan().holders().empty()) return;
  for (const std::string& surprise : plan.surprises(from)) {
    LOG(WARNING) << surprise;
    session.Notify(surprise);
  }
}

void TrainAndFinish(const EngineConfig& plan, const Job& job, const WorkerDevices& devices,
                    WorkerSession& session, TrainingParts& training) {
  LOG(INFO) << "joined as worker " << session.rank();
  training.engines = MakeEngines(plan, session.rank(), devices);
  if (const NetDescription* net = training.engines[0]->net()) CheckBalance(job, *net);
  TrainerOptions& options = training.options;
  options = plan.trainer_options();
  options.from = FindStart(plan, session.rank());
  ModelSpec& model = training.model;
  model = plan.ModelOf(*training.engines[0]);
  model.set_iterations(options.max_iter);
  session.Declare(model, InputsOf(*training.engines[0], options.weights, options.from));
  options.snapshots.owner = SnapshotOwner(job, session.job_number());
  TellIfNothingIsLeft(job, options, session);
  TellSurprises(plan, options.from, session);
  if (plan.wants_snapshot() && !options.from && session.rank() == 0) {
    session.Notify("found no snapshot to go on from; training starts at iteration 0");
  }
  training.net = MakeWorkerNet(training.engines, devices, session, model, options);
  Trainer(*training.net, session, model, options).Train();
}

void TakePart(const ReadEngineConfig& read, const MakeDevices& make_devices) {
  const JobConfig config = ReadJobConfig(FLAGS_config);
  const std::unique_ptr<EngineConfig> plan = read(config, FLAGS_compute_factor);
  if (!FLAGS_out.empty()) MakeDirectories(FLAGS_out);
  // Before it joins, so that it does not if there is no GPU for it, or for its engines.
  const int first =
      FLAGS_first_device >= 0 ? FLAGS_first_device : FirstDevice(config.job, FLAGS_rank);
  const WorkerDevices devices = make_devices(config, first);
  CheckEngines(*plan, devices);
  for (const auto& device : devices.devices) LOG(INFO) << "computes on " << device->device().name();
  // SFB's rebuild uses BLAS beside the engine.
  openblas_set_num_threads(std::max(1, config.job.training().threads()));
  // Where workers may leave a job, whoever ends this one means that; a second time ends it at once.
  SignalEffects effects;
  if (config.job.has_elastic()) effects.sigterm = SignalEffect::kStop;
  Interruption interruption(effects);
  WorkerSessionOptions options;
  options.job = config.job;
  options.job_fingerprint = config.fingerprint;
  options.wanted_rank = FLAGS_rank;
  options.host = FLAGS_host;
  options.trace_directory = FLAGS_out;
  options.interrupted = [&interruption] { return interruption.Pending(); };
  if (config.job.has_elastic()) {
    options.wants_to_leave = [&interruption] { return interruption.TakeRequest().has_value(); };
  }
  EndDeadline end_deadline(kProgram);
  options.job_failed = [&end_deadline](const Error& error) { end_deadline.Start(error); };
  options.goes_back = true;
  options.stops = true;
  options.shares_batch = true;
  options.incarnation = FLAGS_incarnation;
  options.replaces = FLAGS_replaces;
  devices.Describe(options);
  WorkerSession session(options);
  TrainingParts training;  // goes after the job has been told of an error
  const std::atomic<int> rank{session.rank()};
  std::optional<NodeMonitor> monitor;
  try {
    if (config.job.monitor().has_node_port()) {
      monitor.emplace(
          config.job.monitor(),
          NodeMonitor::Shown{Role::kWorker, rank, session.shown_iteration(), session.counters()});
      LOG(INFO) << "metrics: " << monitor->url();
    }
    TrainAndFinish(*plan, config.job, devices, session, training);
  } catch (const Left&) {
    throw;
  } catch (const Error& error) {
    FailTraining(kProgram, devices, session, error);
    throw;
  } catch (const std::exception& error) {
    FailTraining(kProgram, devices, session, Error(ExitCode::kFailure, error.what()));
    throw;
  }
}

ExitCode Run(const ReadEngineConfig& read, const MakeDevices& make_devices) {
  try {
    TakePart(read, make_devices);
  } catch (const Left& left) {
    LOG(INFO) << left.what();
  }
  return ExitCode::kSuccess;
}

}  // namespace

std::string ReadWorkerFlags(int* argc, char*** argv) {
  ReadOwnFlags(
      "A worker of a job: trains on its part of the data and exchanges each layer's update as soon "
      "as it is there.\n\n  poseidon_worker --config=job.prototxt [--rank=N]",
      __FILE__, argc, argv);
  return FLAGS_config;
}

int RunWorker(const char* argv0, const ReadEngineConfig& read, const MakeDevices& make_devices) {
  return RunProgram(kProgram, argv0, [&] { return Run(read, make_devices); });
}

}  // namespace poseidon
