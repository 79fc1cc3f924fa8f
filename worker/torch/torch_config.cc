#include "worker/torch/torch_config.h"

#include <algorithm>
#include <string>

#include "caffe_adapter/files/found_snapshot.h"
#include "caffe_adapter/net/solver.h"
#include "core/error.h"
#include "proto/plan_members.h"
#include "worker/engine/precision.h"
#include "worker/recipe.h"
#include "worker/torch/layers/torch_data_layer.h"
#include "worker/torch/torch_engine.h"

namespace poseidon {
namespace {

// The model of a worker, if `model` is that of one of its devices: they compute side by side, each
// a batch of its own.
void OnDevices(int devices, ModelSpec& model) {
  model.set_batch(model.batch() * devices);
  for (LayerSpec& layer : *model.mutable_layers()) {
    if (!layer.has_inner_product()) continue;
    layer.mutable_inner_product()->set_rows(layer.inner_product().rows() * devices);
  }
}

// The devices share one batch: what a layer has another number of samples of has no part in it.
void CheckOneBatch(const NetDescription& net, int devices) {
  for (const LayerDescription& layer : net.layers) {
    // How many a Python layer makes it decides itself, and a replica asks it.
    if (!IsDataLayer(layer) || layer.type() == "Python") continue;
    for (const BlobDescription& top : layer.tops) {
      if (top.shape.empty() || top.shape[0] == net.batch) continue;
      throw ConfigError(
          layer.where,
          "layer \"" + layer.name() + "\": has " + std::to_string(top.shape[0]) + " samples of \"" +
              top.name +
              "\" in a batch, and the net's batch size, "
              "which the " +
              std::to_string(devices) +
              " devices of a worker (cluster.devices_per_worker) share, is " +
              std::to_string(net.batch) +
              "; start a worker for each device instead, which reads what the net says");
    }
  }
}

// A share of such a layer's batch is not so many samples, but all streams' first or last steps.
void CheckNoStepsAreShared(const NetDescription& net, int devices) {
  for (const LayerDescription& layer : net.layers) {
    const std::string& type = layer.type();
    if (type != "LSTM" && type != "RNN" && type != "LSTMUnit") continue;
    const std::string count = std::to_string(devices);
    throw ConfigError(layer.where,
                      "layer \"" + layer.name() + "\" (" + type +
                          "): the first axis of its blobs is that of steps in time, and the net's "
                          "batch, which the " +
                          count +
                          " devices of a worker (cluster.devices_per_worker) share, would be cut "
                          "along it; set training.batch_per_worker to " +
                          count + " times the net's batch size, " +
                          std::to_string(devices * net.batch) +
                          ", or start a worker for each device");
  }
}

// The first layer that begins a batch with the states that the batch before ended with; empty if
// there is none.
std::string NameOfCarryingLayer(const SolverNet& train) {
  DescribeOptions phase;
  phase.state = train.state;
  for (const int index : LayersInPhase(train.net, train.phase, phase)) {
    const caffe::LayerParameter& layer = train.net.layer(index);
    if (layer.type() != "LSTM" && layer.type() != "RNN") continue;
    if (!layer.recurrent_param().expose_hidden()) return layer.name();
  }
  return "";
}

Precision PrecisionOf(const Training& training) {
  switch (training.precision()) {
    case Training::FLOAT16:
      return Precision::kFloat16;
    case Training::BFLOAT16:
      return Precision::kBfloat16;
    default:
      return Precision::kFloat32;
  }
}

class TorchEngineConfig : public EngineConfig {
 public:
  explicit TorchEngineConfig(const JobConfig& config)
      : config_(config), job_(config_.job), solver_(LoadSolver(SolverPath(config))) {
    CheckLatestSnapshot(job_.training(), solver_);
    CheckOrder(job_.training(), solver_.train);
    CheckOneWrittenBatch(job_.training(), solver_.train);
    if (job_.training().has_batch_per_worker()) {
      batch_per_device_ = job_.training().batch_per_worker() / devices();
    }
    if (devices() == 1 || batch_per_device_) return;
    const NetDescription net = DescribeNet(solver_.train);
    if (net.batch % devices() != 0) {
      throw ConfigError(config_.path + ": the net's batch size, " + std::to_string(net.batch) +
                        ", is what the " + std::to_string(devices()) +
                        " devices of a worker (cluster.devices_per_worker) share, but they can't "
                        "share it equally; set training.batch_per_worker to a multiple");
    }
    CheckOneBatch(net, devices());
    CheckNoStepsAreShared(net, devices());
    batch_per_device_ = net.batch / devices();
  }

  TrainerOptions trainer_options() const override {
    TrainerOptions options = TrainerOptionsOf(job_, solver_.parameter);
    for (std::string& path : options.weights) path = Find(path);
    return options;
  }

  ModelSpec ModelOf(const Engine& engine) const override {
    ModelSpec model = engine.model();
    OnDevices(devices(), model);
    ApplyRecipe(job_, solver_.parameter, model);
    return model;
  }

  void CheckDevice(std::optional<int> cuda_device) const override { CheckTorchDevice(cuda_device); }

  std::vector<std::string> surprises(const std::optional<FoundSnapshot>& from) const override {
    std::vector<std::string> surprises;
    const caffe::SolverParameter& solver = solver_.parameter;
    if (solver.snapshot_prefix().empty() && solver.snapshot_after_train()) {
      surprises.emplace_back(
          "the trained values will not be kept: the solver has no snapshot_prefix");
    }
    if (solver_.tests.size() > 1) {
      surprises.push_back("the results of tests are those of " + TestNetName(solver_, 0) +
                          "; those of the other test nets are in the log of the worker that tests");
    }
    // As in Caffe, where it may be left over.
    if (solver.test_interval() > 0 && solver.test_iter_size() == 0) {
      surprises.emplace_back(
          "nothing is tested: the solver has test_interval, but no test_iter, how many batches a "
          "test takes");
    }
    // Caffe would take a GPU for it; here the solver has no part in that.
    if (solver.has_solver_mode() && solver.solver_mode() == caffe::SolverParameter::GPU &&
        !job_.training().has_device()) {
      surprises.emplace_back(
          "the net is computed on the CPU, though the solver has solver_mode: GPU: the job's "
          "training.device says where; set it to CUDA, or to CPU if that is meant");
    }
    if (const std::string layer = NameOfCarryingLayer(solver_.train);
        !layer.empty() && MayShrink(job_.recovery())) {
      surprises.push_back("what layer \"" + layer +
                          "\" carries from batch to batch begins at zero wherever the number of "
                          "workers changes, for each then has other streams; sequences that are to "
                          "be learned whole must not be longer than a batch");
    }
    if (std::string other = OtherSnapshots(from); !other.empty()) {
      surprises.push_back(std::move(other));
    }
    return surprises;
  }

  bool wants_snapshot() const override { return job_.training().has_snapshot(); }

  std::optional<FoundSnapshot> FindStart() const override {
    if (!job_.training().has_snapshot()) return std::nullopt;
    if (job_.training().snapshot() != "latest") {
      return ReadSnapshot(ResolvePath(config_, job_.training().snapshot(), "training.snapshot"));
    }
    const auto path = FindLatestSnapshot(solver_.parameter.snapshot_prefix());
    if (!path) return std::nullopt;
    return ReadSnapshot(*path);
  }

  std::unique_ptr<Engine> Make(int rank, int replica, EngineDevice* device) const override {
    const Training& training = job_.training();
    TorchEngineOptions options;
    options.solver = solver_;
    // Replicas read what so many workers with one device would.
    options.rank = rank * devices() + replica;
    options.workers = job_.cluster().workers() * devices();
    options.may_test = replica == 0 && MayShrink(job_.recovery());
    options.shuffle = training.shuffle();
    options.seed = Seed();
    options.label_smoothing = training.large_batch().label_smoothing();
    options.batch_per_worker = batch_per_device_;
    options.replicas = devices();
    options.passes = trainer_options().passes.most();
    options.threads = std::max(1, training.threads() / devices());
    options.device = device;
    options.deterministic = job_.communication().deterministic();
    options.precision = PrecisionOf(training);
    options.tf32 = training.precision() == Training::TF32;
    options.cuda_graphs = training.cuda_graphs();
    options.loss_scaling = {.initial_scale = training.loss_scale().initial(),
                            .growth_interval = training.loss_scale().growth_interval()};
    return MakeTorchEngine(options);
  }

 private:
  // What is to be said of snapshots of the prefix that training does not go on from.
  std::string OtherSnapshots(const std::optional<FoundSnapshot>& from) const {
    const caffe::SolverParameter& solver = solver_.parameter;
    const std::string& prefix = solver.snapshot_prefix();
    if (prefix.empty()) return "";
    const bool writes = solver.snapshot() > 0 || solver.snapshot_after_train();
    // Also where none of them is whole.
    if (!from) return writes ? WhatLiesInTheWay(prefix) : "";
    return job_.training().snapshot() == "latest" ? WhyNotTheNewest(prefix, from->path) : "";
  }

  // Beside the config, if it is there; a worker that does not need it need not have it.
  std::string Find(const std::string& path) const {
    try {
      return ResolvePath(config_, path);
    } catch (const ConfigError&) {
      return path;
    }
  }

  int devices() const { return job_.cluster().devices_per_worker(); }

  uint64_t Seed() const {
    if (job_.training().has_seed()) return job_.training().seed();
    return solver_.parameter.random_seed() >= 0 ? solver_.parameter.random_seed() : 1;
  }

  JobConfig config_;
  const Job& job_;
  Solver solver_;
  std::optional<int64_t> batch_per_device_;  // instead of the net's
};

}  // namespace

std::unique_ptr<EngineConfig> ReadTorchConfig(const JobConfig& config) {
  return std::make_unique<TorchEngineConfig>(config);
}

}  // namespace poseidon
