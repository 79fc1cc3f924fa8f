#include "tests/simulation/training_case.h"

#include <glog/logging.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "core/arithmetic/rebuild.h"
#include "core/arithmetic/update_rule.h"
#include "planner/cost/information_book.h"
#include "planner/planner.h"
#include "proto/model_size.h"
#include "proto/update_rule_message.h"

namespace poseidon {
namespace {

// Thousands of nodes join in these tests, and many are lost on purpose.
class QuietLogs : public testing::Environment {
 public:
  void SetUp() override { FLAGS_minloglevel = google::GLOG_FATAL; }
};
[[maybe_unused]] const testing::Environment* const kQuietLogs =
    testing::AddGlobalTestEnvironment(new QuietLogs);

// In [-1, 1), the same for the same arguments (a splitmix64 step over their mixture).
float Noise(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  uint64_t x = a * 0x9E3779B97F4A7C15 + b * 0xC2B2AE3D27D4EB4F + c * 0x165667B19E3779F9 +
               d * 0x27D4EB2F165667C5 + 0x9E3779B97F4A7C15;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  x ^= x >> 31;
  return static_cast<float>(static_cast<double>(x >> 11) * 0x1.0p-52 - 1.0);
}

void FillFactor(uint64_t id, int rank, int64_t iteration, std::span<const float> values,
                std::span<float> factor) {
  for (size_t i = 0; i < factor.size(); ++i) {
    factor[i] = Noise(id, rank, iteration, i) + 0.1F * values[i % values.size()];
  }
}

void FillGradient(const LayerSpec& layer, int index, int rank, int64_t iteration,
                  std::span<const float> values, const GradientBuffers& gradient) {
  const uint64_t id = 2 * static_cast<uint64_t>(index);
  if (!layer.has_inner_product()) return FillFactor(id, rank, iteration, values, gradient.dense);
  const InnerProductSpec& product = layer.inner_product();
  std::vector<float> own_u(gradient.dense.empty() ? 0 : product.rows() * product.outputs());
  std::vector<float> own_v(gradient.dense.empty() ? 0 : product.rows() * product.inputs());
  const std::span<float> u = gradient.dense.empty() ? gradient.u : own_u;
  const std::span<float> v = gradient.dense.empty() ? gradient.v : own_v;
  FillFactor(id, rank, iteration, values, u);
  FillFactor(id + 1, rank, iteration, values, v);
  if (!gradient.dense.empty()) {
    RebuildGradient(product.outputs(), product.inputs(), u, v, gradient.dense);
  }
}

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}
  // In [least, most].
  int64_t Roll(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(random_() % static_cast<uint64_t>(most - least + 1));
  }
  template <typename Value>
  Value Pick(std::initializer_list<Value> values) {
    return *(values.begin() + Roll(0, static_cast<int64_t>(values.size()) - 1));
  }

 private:
  std::mt19937_64 random_;
};

BlobSpec* AddBlob(LayerSpec& layer, std::initializer_list<int64_t> shape) {
  BlobSpec* blob = layer.add_blobs();
  for (const int64_t extent : shape) blob->add_shape(extent);
  blob->set_lr_mult(1);
  blob->set_decay_mult(1);
  return blob;
}

int64_t RandomExtent(Dice& dice) { return dice.Pick<int64_t>({1, 2, 3, 4, 5, 7, 8, 11, 13, 16}); }

LayerSpec RandomLayer(const std::string& name, int64_t batch, Dice& dice) {
  LayerSpec layer;
  if (dice.Roll(0, 1) == 0) {
    layer = InnerProductLayer(name, RandomExtent(dice), RandomExtent(dice), batch);
    if (dice.Roll(0, 2) == 0) layer.mutable_blobs()->RemoveLast();
  } else {
    layer.set_name(name);
    layer.set_type("Convolution");
    for (int64_t blobs = dice.Roll(1, 3); blobs > 0; --blobs) {
      AddBlob(layer, {RandomExtent(dice), RandomExtent(dice)});
    }
  }
  for (BlobSpec& blob : *layer.mutable_blobs()) {
    blob.set_lr_mult(dice.Pick<float>({0, 1, 1, 2}));
    blob.set_decay_mult(dice.Pick<float>({0, 1, 1, 0.5}));
  }
  return layer;
}

UpdateRuleSpec RandomRule(Dice& dice) {
  UpdateRuleSpec rule = PlainRule();
  rule.set_lr_policy(dice.Pick({"fixed", "step", "inv"}));
  rule.set_gamma(0.5F);
  rule.set_power(0.75F);
  rule.set_stepsize(2);
  rule.set_type(dice.Pick({"SGD", "SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"}));
  const bool takes_momentum = rule.type() != "AdaGrad" && rule.type() != "RMSProp";
  rule.set_momentum(takes_momentum ? dice.Pick<float>({0, 0.9F}) : 0);
  // Adaptive rules divide by the root of what may be next to nothing; with Caffe's default of 1e-8
  // the rounding of a sum would decide about the sign of a step.
  rule.set_delta(0.01F);
  rule.set_momentum2(0.99F);
  rule.set_rms_decay(0.9F);
  rule.set_weight_decay(dice.Pick<float>({0, 0.01F}));
  rule.set_regularization_type(dice.Pick({"L1", "L2"}));
  return rule;
}

}  // namespace

Arithmetic MakeArithmetic(const ModelSpec& model) {
  Arithmetic arithmetic;
  arithmetic.initialize = [](int layer, std::span<float> values) {
    for (size_t i = 0; i < values.size(); ++i) values[i] = Noise(1000, layer, i, 0);
  };
  arithmetic.gradient = [model](int rank, int64_t iteration, int layer,
                                std::span<const float> values, const GradientBuffers& gradient) {
    FillGradient(model.layers(layer), layer, rank, iteration, values, gradient);
  };
  return arithmetic;
}

LayerSpec DenseLayer(const std::string& name, int64_t floats) {
  LayerSpec layer;
  layer.set_name(name);
  layer.set_type("Convolution");
  AddBlob(layer, {floats});
  return layer;
}

LayerSpec InnerProductLayer(const std::string& name, int64_t outputs, int64_t inputs,
                            int64_t rows) {
  LayerSpec layer;
  layer.set_name(name);
  layer.set_type("InnerProduct");
  AddBlob(layer, {outputs, inputs});
  AddBlob(layer, {outputs});
  layer.mutable_inner_product()->set_outputs(outputs);
  layer.mutable_inner_product()->set_inputs(inputs);
  layer.mutable_inner_product()->set_rows(rows);
  return layer;
}

UpdateRuleSpec PlainRule() {
  UpdateRuleSpec rule;
  rule.set_type("SGD");
  rule.set_base_lr(0.1F);
  rule.set_lr_policy("fixed");
  return rule;
}

SimulatedClusterOptions SmallTraining(int workers, int servers, std::vector<LayerSpec> layers,
                                      int64_t iterations, Duration step) {
  SimulatedClusterOptions options;
  options.job.mutable_cluster()->set_workers(workers);
  options.job.mutable_cluster()->set_servers(servers);
  options.job.mutable_communication()->set_deterministic(true);
  for (int layer = 0; layer < static_cast<int>(layers.size()); ++layer) {
    *options.work.model.add_layers() = layers[layer];
    options.work.timeline.steps.push_back({layer, step, step});
  }
  *options.work.model.mutable_update_rule() = PlainRule();
  options.work.model.set_batch(1);
  options.work.iterations = iterations;
  options.work.arithmetic = MakeArithmetic(options.work.model);
  options.layout = ColocatedLayout(options.job, NicSpec());
  return options;
}

SimulatedClusterOptions MixedTraining(int64_t iterations, Duration step) {
  SimulatedClusterOptions options = SmallTraining(
      4, 2, {DenseLayer("conv", 40), DenseLayer("scale", 3), InnerProductLayer("fc", 30, 40, 2)},
      iterations, step);
  options.job.mutable_communication()->set_kv_pair_bytes(64);
  options.job.mutable_communication()->set_lanes(2);
  return options;
}

bool IsData(const Envelope& envelope) { return envelope.priority != kControlPriority; }

void ExpectAllEnded(const SimulatedCluster& cluster, ExitCode code) {
  for (size_t i = 0; i < cluster.nodes(); ++i) {
    const NodeRecord& node = cluster.node(i);
    if (node.killed) continue;
    ASSERT_TRUE(node.end) << node.id.ToString() << " has not ended";
    EXPECT_EQ(node.end->exit_code(), static_cast<int>(code))
        << node.id.ToString() << ": " << node.end->reason();
  }
}

SimulatedClusterOptions RandomTraining(uint64_t seed) {
  Dice dice(seed);
  SimulatedClusterOptions options;
  Cluster& cluster = *options.job.mutable_cluster();
  cluster.set_workers(static_cast<int>(dice.Roll(1, 9)));
  cluster.set_servers(static_cast<int>(dice.Roll(1, 5)));
  Communication& communication = *options.job.mutable_communication();
  using C = Communication;
  communication.set_policy(dice.Pick({C::BYTES, C::ALL_PS, C::ALL_SFB, C::ALL_RING,
                                      C::ALL_HALVING_DOUBLING, C::ALL_TORUS, C::ALL_ADAM}));
  communication.set_bucket_bytes(dice.Pick<int64_t>({0, 0, 200, 100000}));
  communication.set_factor_ring(dice.Roll(0, 1) == 0);
  communication.set_update_at(dice.Pick({C::AUTOMATIC, C::WORKERS}));
  communication.set_by_priority(dice.Roll(0, 3) > 0);
  communication.set_overlap(dice.Roll(0, 3) > 0);
  communication.set_kv_pair_bytes(4 * dice.Pick<int64_t>({1, 2, 3, 7, 16, 100, 524288}));
  communication.set_lanes(static_cast<int>(dice.Roll(1, 3)));
  communication.set_deterministic(dice.Roll(0, 1) == 0);

  TrainingWork& work = options.work;
  const int64_t batch = dice.Roll(1, 4);
  const int layers = static_cast<int>(dice.Roll(1, 6));
  for (int layer = 0; layer < layers; ++layer) {
    *work.model.add_layers() = RandomLayer("layer" + std::to_string(layer), batch, dice);
    for (int64_t plain = dice.Roll(0, 1); plain >= 0; --plain) {
      ComputeStep step;
      if (plain == 0) step.layer = layer;
      step.forward = std::chrono::microseconds(dice.Roll(0, 300));
      step.backward = std::chrono::microseconds(dice.Roll(0, 300));
      work.timeline.steps.push_back(step);
    }
  }
  *work.model.mutable_update_rule() = RandomRule(dice);
  work.model.set_batch(batch);
  work.iterations = dice.Roll(1, 6);
  work.arithmetic = MakeArithmetic(work.model);
  NicSpec nic;
  nic.goodput_bytes_per_second = dice.Pick({1e6, 1e7, 5e9});
  options.layout =
      dice.Roll(0, 1) == 0 ? ColocatedLayout(options.job, nic) : SeparateLayout(options.job, nic);
  return options;
}

wire::PlanAndModel RandomPlan(const SimulatedClusterOptions& options, uint64_t seed) {
  Dice dice(seed);
  const ModelSpec& model = options.work.model;
  Communication communication = options.job.communication();
  communication.set_update_at(
      dice.Pick({Communication::AUTOMATIC, Communication::SERVERS, Communication::WORKERS}));
  communication.set_by_priority(dice.Roll(0, 3) > 0);
  communication.set_overlap(dice.Roll(0, 3) > 0);
  std::vector<BucketChoice> buckets;
  for (int layer = 0; layer < model.layers_size(); layer += buckets.back().layer_count) {
    BucketChoice& choice = buckets.emplace_back();
    choice.first_layer = layer;
    if (model.layers(layer).has_inner_product() && dice.Roll(0, 1) == 0) {
      choice.scheme = dice.Pick({SFB, ADAM});
      choice.factor_ring = choice.scheme == SFB && dice.Roll(0, 1) == 0;
    } else {
      choice.scheme = dice.Pick({PS, PS, RING, HALVING_DOUBLING, TORUS});
      choice.layer_count = static_cast<int>(dice.Roll(1, model.layers_size() - layer));
    }
    choice.chunk_floats = dice.Pick<int64_t>({1, 2, 3, 7, 16, 100, 524288});
  }
  InformationBook book(model, options.job.cluster().workers(), options.job.cluster().servers());
  if (options.job.recovery().mode() != Recovery::NONE) book = book.WithUpdatesAtWorkers();
  wire::PlanAndModel plan;
  *plan.mutable_plan() = MakePlan(book, communication, buckets);
  *plan.mutable_model() = model;
  return plan;
}

namespace {

// What the scheduler's program would do.
class Asker : public Actor {
 public:
  explicit Asker(Envelope asked) : asked_(std::move(asked)) {}
  void OnStart(Outbox& outbox) override { outbox.Send(std::move(asked_)); }
  void OnMessage(const Envelope& envelope, Outbox& outbox) override {
    (void)envelope;
    (void)outbox;
  }

 private:
  Envelope asked_;
};

constexpr int kSpareLane = 10;

constexpr NodeId kScheduler{Role::kScheduler, 0};

// A lane of the node sends it.
void AskAt(Time when, const NodeId& node, const Envelope& asked, SimulatedCluster& cluster) {
  cluster.runtime().At(when, [&cluster, asked, node] {
    const NodeRecord& record = cluster.node(node);
    if (record.killed || record.end) return;
    cluster.runtime().Attach(cluster.process(node), kSpareLane, std::make_unique<Asker>(asked));
  });
}

}  // namespace

void AskAt(Time when, const wire::PlanAndModel& plan, SimulatedCluster& cluster) {
  AskAt(when, kScheduler, MakeEnvelope(MessageKind::kSwitchPlan, Here(kControlLane), plan),
        cluster);
}

void AskToStopAt(Time when, SimulatedCluster& cluster) {
  Envelope stop;
  stop.kind = MessageKind::kStopTraining;
  stop.to = Here(kControlLane);
  AskAt(when, kScheduler, stop, cluster);
}

void AskToLeaveAt(Time when, const NodeId& worker, SimulatedCluster& cluster) {
  Envelope leave;
  leave.kind = MessageKind::kLeave;
  leave.to = Here(kApplicationLane);
  AskAt(when, worker, leave, cluster);
}

namespace {

// Moves each value by one unit in the last place of the largest, up or down as `random` says;
// without one, not at all. A sum is as exact as its largest term, not as its result.
void Move(std::mt19937_64* random, std::span<float> values, float largest) {
  if (random == nullptr) return;
  const float unit = std::nextafter(largest, INFINITY) - largest;
  for (float& value : values) value += (*random)() % 2 == 0 ? unit : -unit;
}

float Largest(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// The average is of sums in double. `moves`: null, or by what values and gradients are moved.
Parameters TrainSerially(const TrainingWork& work, const WorkersOf& workers_of,
                         std::mt19937_64* moves) {
  const UpdateRule rule = ToUpdateRule(work.model.update_rule());
  const size_t state = OptimizerStatePerParameter(rule);
  Parameters values;
  Parameters optimizer_state;
  for (int layer = 0; layer < work.model.layers_size(); ++layer) {
    values.emplace_back(FloatCount(work.model.layers(layer)));
    optimizer_state.emplace_back(values.back().size() * state);
    work.arithmetic.initialize(layer, values.back());
    Move(moves, values.back(), Largest(values.back()));
  }
  for (int64_t iteration = 0; iteration < work.iterations; ++iteration) {
    const int workers = workers_of(iteration);
    for (int layer = 0; layer < work.model.layers_size(); ++layer) {
      const size_t floats = values[layer].size();
      std::vector<double> sum(floats);
      std::vector<float> gradient(floats);
      for (int rank = 0; rank < workers; ++rank) {
        work.arithmetic.gradient(rank, iteration, layer, values[layer], {gradient, {}, {}});
        Move(moves, gradient, Largest(gradient));
        for (size_t i = 0; i < floats; ++i) sum[i] += gradient[i];
      }
      for (size_t i = 0; i < floats; ++i) gradient[i] = static_cast<float>(sum[i]);
      size_t offset = 0;
      for (const BlobSpec& blob : work.model.layers(layer).blobs()) {
        const size_t count = FloatCount(blob);
        Update({rule,
                iteration,
                {blob.lr_mult(), blob.decay_mult()},
                1.0F / static_cast<float>(workers)},
               std::span(gradient).subspan(offset, count),
               std::span(values[layer]).subspan(offset, count),
               std::span(optimizer_state[layer]).subspan(offset * state, count * state));
        offset += count;
      }
      if (!rule.deferred) Move(moves, values[layer], Largest(values[layer]));
    }
    if (!rule.deferred) continue;
    DeferredUpdate deferred(work.model, work.deferred);
    deferred.Begin(1, [&](int layer) { return std::span<const float>(optimizer_state[layer]); });
    for (int layer = 0; layer < work.model.layers_size(); ++layer) {
      deferred.Apply(rule, layer, iteration, values[layer], optimizer_state[layer]);
      Move(moves, values[layer], Largest(values[layer]));
    }
  }
  return values;
}

}  // namespace

Parameters TrainSerially(const TrainingWork& work, int workers) {
  return TrainSerially(
      work, [workers](int64_t) { return workers; }, nullptr);
}

Parameters TrainSerially(const TrainingWork& work, const WorkersOf& workers) {
  return TrainSerially(work, workers, nullptr);
}

double RoundingBound(const TrainingWork& work, int workers) {
  return RoundingBound(work, [workers](int64_t) { return workers; });
}

double RoundingBound(const TrainingWork& work, const WorkersOf& workers) {
  constexpr double kAllowance = 8;
  const Parameters reference = TrainSerially(work, workers);
  double largest = 0;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    std::mt19937_64 moves(seed);
    largest = std::max(largest, Difference(TrainSerially(work, workers, &moves), reference));
  }
  return kAllowance * largest;
}

Parameters ParametersOf(const SimulatedCluster& cluster, int rank) {
  Parameters parameters;
  for (int layer = 0; layer < cluster.context(rank)->plan.model().layers_size(); ++layer) {
    const std::span<const float> values = cluster.values(rank, layer);
    parameters.emplace_back(values.begin(), values.end());
  }
  return parameters;
}

double Difference(const Parameters& a, const Parameters& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (size_t layer = 0; layer < a.size(); ++layer) {
    if (a[layer].size() != b[layer].size()) return INFINITY;
    for (size_t i = 0; i < a[layer].size(); ++i) {
      const double difference = std::abs(double{a[layer][i]} - double{b[layer][i]}) /
                                std::max(1.0, std::abs(double{b[layer][i]}));
      // Not max: a NaN must not be lost.
      if (!(difference <= largest)) largest = difference;
    }
  }
  return largest;
}

}  // namespace poseidon
