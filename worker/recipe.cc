#include "worker/recipe.h"

#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/net/host_address.h"
#include "core/text/split.h"

namespace poseidon {
namespace {

PassSchedule PassesOf(const Job& job, const caffe::SolverParameter& solver) {
  std::vector<PassSchedule::Growth> growth;
  for (const BatchGrowth& entry : job.training().large_batch().batch_growth()) {
    growth.push_back({entry.iteration(), entry.factor()});
  }
  return PassSchedule(solver.iter_size(), std::move(growth));
}

bool Clips(const caffe::SolverParameter& solver) { return solver.clip_gradients() >= 0; }

void ScaleRate(const LargeBatch& recipe, int64_t samples, UpdateRuleSpec& rule) {
  const float given = rule.base_lr();
  if (recipe.has_reference_batch()) {
    rule.set_solver_base_lr(given);
    rule.set_base_lr(static_cast<float>(static_cast<double>(given) * static_cast<double>(samples) /
                                        static_cast<double>(recipe.reference_batch())));
  }
  if (recipe.has_warmup_iterations()) {
    rule.set_warmup_iterations(recipe.warmup_iterations());
    rule.set_warmup_base_lr(recipe.has_warmup_base_lr() ? recipe.warmup_base_lr() : given);
  }
}

void CorrectMomentum(UpdateRuleSpec& rule) {
  if (rule.type() != "SGD" && rule.type() != "Nesterov") {
    throw ConfigError("training.large_batch.momentum_correction: solver type " + rule.type() +
                      " does not keep steps as momentum; it works with SGD and Nesterov");
  }
  rule.set_momentum_correction(true);
}

// The policy's rate is 0 from max_iter on, so that the rest of the iterations would learn nothing.
void CheckRateLasts(const Training& training, const caffe::SolverParameter& solver) {
  if (solver.lr_policy() != "poly" || solver.power() == 0) return;
  if (training.iterations() <= solver.max_iter()) return;
  throw ConfigError("training.iterations is " + std::to_string(training.iterations()) +
                    ", but with lr_policy \"poly\" the solver's rate comes to 0 at its max_iter, " +
                    std::to_string(solver.max_iter()) +
                    "; give the solver a max_iter of that many, or train for fewer");
}

// As in Caffe's solver an entry may name several files, comma separated.
void AddPaths(const google::protobuf::RepeatedPtrField<std::string>& entries,
              std::vector<std::string>& paths) {
  for (const std::string& entry : entries) {
    for (const std::string& path : SplitAtCommas(entry)) paths.push_back(path);
  }
}

bool StepsThroughTime(const caffe::LayerParameter& layer) {
  return layer.type() == "LSTM" || layer.type() == "RNN" || layer.type() == "LSTMUnit";
}

// Whether training.shuffle is about what the layer reads. WindowData draws at random in any case.
bool ReadsInOrder(const caffe::LayerParameter& layer) {
  return layer.type() == "Data" || layer.type() == "ImageData" || layer.type() == "HDF5Data";
}

// Samples of a batch of each top, as a layer that reads or makes samples says; none where it does
// not say.
std::vector<int64_t> WrittenBatches(const caffe::LayerParameter& layer) {
  std::vector<int64_t> batches;
  const auto add = [&](const auto& data) {
    if (data.has_batch_size()) batches.push_back(data.batch_size());
  };
  if (layer.type() == "Data") add(layer.data_param());
  if (layer.type() == "ImageData") add(layer.image_data_param());
  if (layer.type() == "HDF5Data") add(layer.hdf5_data_param());
  if (layer.type() == "WindowData") add(layer.window_data_param());
  if (layer.type() != "DummyData") return batches;
  const caffe::DummyDataParameter& dummy = layer.dummy_data_param();
  batches.assign(dummy.num().begin(), dummy.num().end());
  for (const caffe::BlobShape& shape : dummy.shape()) {
    if (shape.dim_size() > 0) batches.push_back(shape.dim(0));
  }
  return batches;
}

}  // namespace

TrainerOptions TrainerOptionsOf(const Job& job, const caffe::SolverParameter& solver) {
  const Training& training = job.training();
  TrainerOptions options;
  options.max_iter = training.has_iterations() ? training.iterations() : solver.max_iter();
  options.display = solver.display();
  options.average_loss = solver.average_loss();
  if (solver.test_iter_size() > 0) options.test_interval = solver.test_interval();
  options.test_initialization = solver.test_initialization();
  options.passes = PassesOf(job, solver);
  if (Clips(solver)) options.deferred.clip_gradients = solver.clip_gradients();
  if (training.large_batch().has_lars()) options.deferred.lars = training.large_batch().lars();
  options.snapshots = {.prefix = solver.snapshot_prefix(),
                       .interval = solver.snapshot(),
                       .after_train = solver.snapshot_after_train(),
                       .hdf5 = solver.snapshot_format() == caffe::SolverParameter::HDF5};
  // The job's stand in for the solver's.
  AddPaths(training.weights_size() > 0 ? training.weights() : solver.weights(), options.weights);
  return options;
}

std::string SnapshotOwner(const Job& job, uint64_t number) {
  const Cluster& cluster = job.cluster();
  const HostAndPort scheduler{cluster.scheduler_host(), cluster.scheduler_port()};
  return "the job \"" + job.name() + "\" of the scheduler at " + scheduler.ToString() +
         " (number " + std::to_string(number) + ")";
}

void ApplyRecipe(const Job& job, const caffe::SolverParameter& solver, ModelSpec& model) {
  CheckRateLasts(job.training(), solver);
  const LargeBatch& recipe = job.training().large_batch();
  const PassSchedule passes = PassesOf(job, solver);
  UpdateRuleSpec& rule = *model.mutable_update_rule();
  ScaleRate(recipe, job.cluster().workers() * model.batch() * passes.PassesOf(0), rule);
  if (recipe.momentum_correction()) CorrectMomentum(rule);
  if (recipe.has_lars()) rule.set_deferred(true);
  model.set_batch(model.batch() * passes.most());
  if (passes.most() > 1) model.set_passes(passes.most());
  for (LayerSpec& layer : *model.mutable_layers()) {
    if (!layer.has_inner_product()) continue;
    layer.mutable_inner_product()->set_rows(layer.inner_product().rows() * passes.most());
  }
}

void CheckOrder(const Training& training, const SolverNet& train) {
  if (training.has_shuffle()) return;
  DescribeOptions phase;
  phase.state = train.state;
  const caffe::LayerParameter* reader = nullptr;
  std::optional<int> recurrent;
  for (const int index : LayersInPhase(train.net, train.phase, phase)) {
    const caffe::LayerParameter& layer = train.net.layer(index);
    if (reader == nullptr && ReadsInOrder(layer)) reader = &layer;
    if (!recurrent && StepsThroughTime(layer)) recurrent = index;
  }
  if (reader == nullptr || !recurrent) return;
  const caffe::LayerParameter& layer = train.net.layer(*recurrent);
  throw ConfigError(train.locate("layer." + std::to_string(*recurrent)),
                    "layer \"" + layer.name() + "\" (" + layer.type() +
                        ") steps through time, and the records of layer \"" + reader->name() +
                        "\" would be shuffled, as shuffle is on where nobody says otherwise; write "
                        "shuffle: false into the job's training, or into the net of an experiment, "
                        "where a record is a time step, or shuffle: true where each record is a "
                        "whole sequence");
}

void CheckOneWrittenBatch(const Training& training, const SolverNet& train) {
  if (!training.has_batch_per_worker()) return;
  DescribeOptions phase;
  phase.state = train.state;
  std::optional<int64_t> first;
  std::string first_layer;
  for (const int index : LayersInPhase(train.net, train.phase, phase)) {
    const caffe::LayerParameter& layer = train.net.layer(index);
    for (const int64_t batch : WrittenBatches(layer)) {
      if (!first) {
        first = batch;
        first_layer = layer.name();
      }
      if (batch == *first) continue;
      throw ConfigError(train.locate("layer." + std::to_string(index)),
                        "layer \"" + layer.name() + "\": has " + std::to_string(batch) +
                            " samples in a batch, and layer \"" + first_layer + "\" has " +
                            std::to_string(*first) +
                            ", but training.batch_per_worker would give all layers the same; "
                            "leave it out, so that each has what the net says");
    }
  }
}

void CheckSmoothing(float label_smoothing, const NetDescription& net, const SolverNet& train) {
  if (label_smoothing == 0) return;
  for (const LayerDescription& layer : net.layers) {
    if (layer.type() == "SoftmaxWithLoss") return;
  }
  throw ConfigError(train.locate(""),
                    "no layer of the net in TRAIN is a SoftmaxWithLoss, so "
                    "training.large_batch.label_smoothing has no effect; leave it out");
}

}  // namespace poseidon
