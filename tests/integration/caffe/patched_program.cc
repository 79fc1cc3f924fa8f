// A training program as a user may have one, with a solver of its own that knows nothing of other
// workers: the arithmetic of TorchEngine, blobs and updates of its own. DistributedSolver makes it
// one of a job's workers, by the very calls that Caffe's callbacks make.
#include <gflags/gflags.h>

#include <random>
#include <vector>

#include "caffe_adapter/patch/distributed_solver.h"
#include "core/arithmetic/update_rule.h"
#include "core/program.h"
#include "proto/bucket.h"
#include "proto/job_config.h"
#include "proto/model_size.h"
#include "proto/update_rule_message.h"
#include "tests/integration/caffe/moved_values.h"
#include "worker/torch/torch_engine.h"

DEFINE_string(config, "", "The job config.");
DEFINE_string(out, "", "Not used; `--out` is what all nodes are started with.");
DEFINE_int32(rank, -1, "This worker's rank.");
DEFINE_string(solver, "", "The solver file.");
DEFINE_int64(batch, 0, "Samples of a pass.");
DEFINE_uint64(
    move, 0,
    "Moves the first values by one unit in the last place, up or down by this seed; 0: not.");

namespace poseidon {
namespace {

using Floats = std::vector<float>;

class EngineSolver : public PatchedSolver {
 public:
  EngineSolver(const TorchEngineOptions& options)
      : engine_(MakeTorchEngine(options)),
        passes_(options.solver.parameter.iter_size()),
        model_(engine_->model()),
        rule_(ToUpdateRule(model_.update_rule())) {
    model_.set_iterations(options.solver.parameter.max_iter());
    model_.set_batch(model_.batch() * passes_);
    for (LayerSpec& layer : *model_.mutable_layers()) {
      const auto count = static_cast<size_t>(FloatCount(layer));
      values_.emplace_back(count);
      gradients_.emplace_back(count);
      state_.emplace_back(count * static_cast<size_t>(OptimizerStatePerParameter(rule_)));
      const InnerProductSpec& product = layer.inner_product();
      u_.emplace_back(product.rows() * product.outputs());
      v_.emplace_back(product.rows() * product.inputs());
      if (!layer.has_inner_product()) continue;
      layer.mutable_inner_product()->set_rows(product.rows() * passes_);
    }
    for (int layer = 0; layer < model_.layers_size(); ++layer) {
      engine_->BindParameters(layer, values_[layer]);
    }
    engine_->FillParameters();
  }

  const ModelSpec& model() const override { return model_; }
  int passes() const override { return passes_; }
  void GetValues(int layer, std::span<float> values) override { Copy(values_[layer], values); }
  void SetValues(int layer, std::span<const float> values) override {
    Copy(values, values_[layer]);
  }
  void GetGradient(int layer, std::span<float> gradient) override {
    Copy(gradients_[layer], gradient);
  }
  void SetGradient(int layer, std::span<const float> gradient) override {
    Copy(gradient, gradients_[layer]);
  }
  void GetFactors(int layer, std::span<float> u, std::span<float> v) override {
    Copy(u_[layer], u);
    Copy(v_[layer], v);
  }

  void MoveFirstValues(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (Floats& values : values_) MoveByOneUnit(random, values);
  }

  // What a worker other than 0 starts from must not matter.
  void Spoil() {
    for (Floats& values : values_) std::fill(values.begin(), values.end(), 77.0F);
  }

  void Train(DistributedSolver& distributed) {
    for (int64_t iteration = 0; iteration < model_.iterations(); ++iteration) {
      distributed.OnStart();
      for (Floats& gradient : gradients_) std::fill(gradient.begin(), gradient.end(), 0.0F);
      float loss = 0;
      for (int pass = 0; pass < passes_; ++pass) {
        loss += Pass(distributed, iteration * passes_ + pass) / static_cast<float>(passes_);
      }
      distributed.OnGradientsReady(loss);
      Update(iteration);
    }
  }

 private:
  static void Copy(std::span<const float> from, std::span<float> to) {
    std::copy(from.begin(), from.end(), to.begin());
  }

  float Pass(DistributedSolver& distributed, int64_t batch) {
    engine_->LoadBatch(batch);
    for (int step = 0; step < engine_->steps(); ++step) {
      if (const auto layer = engine_->layer_of_step(step)) distributed.BeforeForward(*layer);
      engine_->Forward(step);
    }
    for (int step = engine_->steps() - 1; step >= 0; --step) {
      const std::optional<int> layer = engine_->layer_of_step(step);
      if (!layer) {
        engine_->Backward(step, {});
        continue;
      }
      Backward(step, *layer);
      distributed.AfterBackward(*layer);
    }
    return engine_->loss();
  }

  void Backward(int step, int layer) {
    Floats& sum = gradients_[layer];
    if (u_[layer].empty()) {
      Floats gradient(sum.size());
      engine_->Backward(step, {.dense = gradient, .u = {}, .v = {}});
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
      return;
    }
    engine_->Backward(step, {.dense = {}, .u = u_[layer], .v = v_[layer]});
    AddProduct(layer);
  }

  // The dense gradient of an inner-product layer, for whoever wants it.
  void AddProduct(int layer) {
    const InnerProductSpec& product = model_.layers(layer).inner_product();
    const auto outputs = static_cast<size_t>(product.outputs());
    const auto inputs = static_cast<size_t>(product.inputs());
    Floats& sum = gradients_[layer];
    for (size_t row = 0; row < u_[layer].size() / outputs; ++row) {
      for (size_t m = 0; m < outputs; ++m) {
        const float gradient = u_[layer][row * outputs + m];
        for (size_t n = 0; n < inputs; ++n) {
          sum[m * inputs + n] += gradient * v_[layer][row * inputs + n];
        }
        if (sum.size() > outputs * inputs) sum[outputs * inputs + m] += gradient;
      }
    }
  }

  void Update(int64_t iteration) {
    const auto stride = static_cast<size_t>(OptimizerStatePerParameter(rule_));
    for (int layer = 0; layer < model_.layers_size(); ++layer) {
      size_t begin = 0;
      for (const BlobSpec& blob : model_.layers(layer).blobs()) {
        const auto count = static_cast<size_t>(FloatCount(blob));
        poseidon::Update(
            {rule_, iteration, MultipliersOf(blob), 1.0F / static_cast<float>(passes_)},
            std::span(gradients_[layer]).subspan(begin, count),
            std::span(values_[layer]).subspan(begin, count),
            std::span(state_[layer]).subspan(begin * stride, count * stride));
        begin += count;
      }
    }
  }

  std::unique_ptr<Engine> engine_;
  int passes_;
  ModelSpec model_;
  UpdateRule rule_;
  std::vector<Floats> values_;  // by layer of the model
  std::vector<Floats> gradients_;
  std::vector<Floats> state_;
  std::vector<Floats> u_;  // of a pass; empty where the gradient is no product
  std::vector<Floats> v_;
};

ExitCode Run() {
  const JobConfig config = ReadJobConfig(FLAGS_config);
  WorkerSessionOptions options;
  options.job = config.job;
  options.job_fingerprint = config.fingerprint;
  options.wanted_rank = FLAGS_rank;
  WorkerSession session(options);
  TorchEngineOptions engine;
  engine.solver = LoadSolver(FLAGS_solver);
  engine.rank = session.rank();
  engine.workers = session.workers();
  engine.batch_per_worker = FLAGS_batch;
  engine.seed = 3;
  EngineSolver solver(engine);
  if (FLAGS_move != 0) solver.MoveFirstValues(FLAGS_move);
  if (session.rank() != 0) solver.Spoil();
  DistributedSolver distributed(solver, session);
  solver.Train(distributed);
  distributed.Finish();
  return ExitCode::kSuccess;
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return poseidon::RunProgram("patched_program", argv[0], poseidon::Run);
}
