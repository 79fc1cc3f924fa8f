// What it costs that a worker keeps what it may go back to: an update of LeNet's layers with it and
// without (client/sync/kept_state.h).
//
//   bench_update [Google Benchmark's flags]
//
// One thread updates every layer, as a lane does when its gradient has come, for several workers in
// turn, whose memory is as much as the machine's cache holds or more. Each pass over all of them is
// timed with and without, one after the other, by the thread's processor time, so that a busy
// neighbor hits both alike. Printed are, beside the mean time of an update of all layers, GB/s
// (10^9) of updated floats, and how many times as long as without it takes, by the medians.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "client/sync/kept_state.h"
#include "client/sync/syncer.h"

namespace poseidon {
namespace {

// conv1, conv2, ip1, ip2 with their biases.
constexpr int64_t kLayers[] = {520, 25050, 400500, 5010};
constexpr int64_t kFloats = 431080;

std::shared_ptr<const wire::PlanAndModel> LenetPlan(const std::string& rule) {
  auto plan = std::make_shared<wire::PlanAndModel>();
  UpdateRuleSpec& update = *plan->mutable_model()->mutable_update_rule();
  update.set_type(rule);
  update.set_base_lr(0.01F);
  update.set_lr_policy("inv");
  update.set_gamma(0.0001F);
  update.set_power(0.75F);
  update.set_momentum(0.9F);
  update.set_momentum2(0.999F);
  update.set_weight_decay(0.0005F);
  plan->mutable_plan()->set_workers(4);
  plan->mutable_plan()->set_lanes(1);
  for (const int64_t floats : kLayers) {
    LayerSpec& layer = *plan->mutable_model()->add_layers();
    BlobSpec& blob = *layer.add_blobs();
    blob.add_shape(floats);
    blob.set_lr_mult(1);
    blob.set_decay_mult(1);
    BucketPlan& bucket = *plan->mutable_plan()->add_buckets();
    bucket.set_first_layer(plan->model().layers_size() - 1);
    bucket.set_layer_count(1);
    bucket.set_scheme(PS);
    bucket.set_update_at_workers(true);
    bucket.add_chunks()->set_size(floats);
  }
  return plan;
}

class Worker {
 public:
  explicit Worker(const std::shared_ptr<const wire::PlanAndModel>& plan, bool keeps)
      : context_(plan, std::make_shared<ModelMemory>(
                           *plan, ModelMemory::Options{
                                      .phantom = false, .recovers = keeps, .devices = {}})) {
    if (!keeps) return;
    context_.kept = std::make_shared<KeptState>(plan, context_.memory, false);
    context_.kept->AllArrived(0);
  }

  void Update() {
    for (int bucket = 0; bucket < context_.plan.plan().buckets_size(); ++bucket) {
      const std::span<const float> gradient =
          context_.memory->bucket(bucket).gradients[iteration_ % 2];
      context_.Keep(bucket, iteration_, 0, static_cast<int64_t>(gradient.size()));
      context_.UpdateRange(bucket, iteration_, 0, gradient, 0.25F);
    }
    ++iteration_;
  }

 private:
  SyncContext context_;
  int64_t iteration_ = 0;
};

double ProcessorSeconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double SecondsOf(std::vector<std::unique_ptr<Worker>>& workers) {
  const double start = ProcessorSeconds();
  for (const auto& worker : workers) worker->Update();
  return ProcessorSeconds() - start;
}

double Median(std::vector<double>& seconds) {
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

void Update(benchmark::State& state, const std::string& rule) {
  const auto plan = LenetPlan(rule);
  std::vector<std::unique_ptr<Worker>> plain;
  std::vector<std::unique_ptr<Worker>> keeping;
  for (int64_t i = 0; i < state.range(0); ++i) {
    plain.push_back(std::make_unique<Worker>(plan, false));
    keeping.push_back(std::make_unique<Worker>(plan, true));
  }
  std::vector<double> without, with;
  for ([[maybe_unused]] auto _ : state) {
    without.push_back(SecondsOf(plain));
    with.push_back(SecondsOf(keeping));
    state.SetIterationTime(with.back());
  }
  const double floats = static_cast<double>(kFloats * state.range(0));
  state.counters["GB/s"] = floats * sizeof(float) / Median(with) / 1e9;
  state.counters["x_without"] = Median(with) / Median(without);
}

void Measured(benchmark::internal::Benchmark* rule) {
  rule->ArgName("workers")->Arg(1)->Arg(4)->UseManualTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(Update, SGD, "SGD")->Name("SGD")->Apply(Measured);
BENCHMARK_CAPTURE(Update, Adam, "Adam")->Name("Adam")->Apply(Measured);

}  // namespace
}  // namespace poseidon

BENCHMARK_MAIN();
