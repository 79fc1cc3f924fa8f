#include "worker/engine/layer_measurement.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>

#include "client/pace/compute_disturbance.h"
#include "client/pace/compute_spread.h"
#include "core/arithmetic/median.h"
#include "core/time.h"
#include "proto/cluster_rates.h"
#include "proto/model_size.h"
#include "proto/replay_model.h"

namespace poseidon {
namespace {

using Clock = std::chrono::steady_clock;

double MillisecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// An engine with memory for its parameters and one layer's gradient.
class Bench {
 public:
  explicit Bench(Engine& engine) : engine_(engine) {
    size_t largest = 0;
    for (const LayerSpec& layer : engine_.model().layers()) {
      values_.emplace_back(FloatCount(layer));
      largest = std::max(largest, values_.back().size());
      engine_.BindParameters(static_cast<int>(values_.size()) - 1, values_.back());
    }
    gradient_.resize(largest);
    engine_.FillParameters();
  }

  double Load(int64_t iteration) {
    const Clock::time_point begin = Clock::now();
    engine_.LoadBatch(iteration);
    return MillisecondsSince(begin);
  }

  double Forward(int step) {
    const Clock::time_point begin = Clock::now();
    engine_.Forward(step);
    return MillisecondsSince(begin);
  }

  double Backward(int step) {
    GradientBuffers target;
    if (const auto layer = engine_.layer_of_step(step)) {
      target.dense = std::span(gradient_).first(values_[*layer].size());
    }
    const Clock::time_point begin = Clock::now();
    engine_.Backward(step, target);
    return MillisecondsSince(begin);
  }

 private:
  Engine& engine_;
  std::vector<std::vector<float>> values_;
  std::vector<float> gradient_;
};

// What is measured of one step, or of all together.
struct Samples {
  std::vector<double> forward;
  std::vector<double> backward;
};

// Caffe allows layers without parameters to have one name, and a replay does not.
std::string UniqueName(const std::string& name, std::set<std::string>& taken) {
  std::string unique = name;
  for (int number = 2; !taken.insert(unique).second; ++number) {
    unique = name + " (" + std::to_string(number) + ")";
  }
  return unique;
}

// Operations a second of the products of the InnerProduct layers' forward passes, of which a
// gradient is as many when it is rebuilt from factors. nullopt: there is none that took time.
std::optional<double> ProductRate(const Engine& engine, const LayerMeasurement& measured) {
  constexpr double kOperations = 2;  // a multiplication and an addition
  double operations = 0;
  double seconds = 0;
  for (int step = 0; step < engine.steps(); ++step) {
    const auto layer = engine.layer_of_step(step);
    if (!layer || !engine.model().layers(*layer).has_inner_product()) continue;
    const InnerProductSpec& product = engine.model().layers(*layer).inner_product();
    operations += kOperations * static_cast<double>(product.rows()) *
                  static_cast<double>(product.outputs()) * static_cast<double>(product.inputs());
    seconds += measured.steps[step].forward_ms / kMillisecondsPerSecond;
  }
  if (seconds <= 0) return std::nullopt;
  return NearestOperationRate(operations / seconds);
}

}  // namespace

LayerMeasurement MeasureLayers(Engine& engine, int warmup, int iterations,
                               const std::function<void(int done)>& progress) {
  Bench bench(engine);
  std::vector<Samples> steps(engine.steps());
  Samples whole;
  std::vector<double> data;
  std::vector<std::vector<double>> passes;  // of each iteration, in seconds
  for (int iteration = 0; iteration < warmup + iterations; ++iteration) {
    if (iteration == warmup) {
      steps.assign(engine.steps(), {});
      whole = {};
      data.clear();
      passes.clear();
    }
    data.push_back(bench.Load(iteration));
    std::vector<double>& seconds = passes.emplace_back();
    const auto add = [&seconds](double milliseconds, std::vector<double>& to, double& sum) {
      to.push_back(milliseconds);
      sum += milliseconds;
      seconds.push_back(milliseconds / kMillisecondsPerSecond);
    };
    double forward = 0;
    double backward = 0;
    for (int step = 0; step < engine.steps(); ++step) {
      add(bench.Forward(step), steps[step].forward, forward);
    }
    for (int step = engine.steps() - 1; step >= 0; --step) {
      add(bench.Backward(step), steps[step].backward, backward);
    }
    whole.forward.push_back(forward);
    whole.backward.push_back(backward);
    progress(iteration + 1);
  }
  LayerMeasurement measured;
  for (int step = 0; step < engine.steps(); ++step) {
    measured.steps.push_back({engine.step_name(step),
                              engine.net() != nullptr ? engine.net()->layers[step].type() : "",
                              Median(steps[step].forward), Median(steps[step].backward)});
  }
  measured.forward_ms = Median(whole.forward);
  measured.backward_ms = Median(whole.backward);
  measured.data_ms = Median(data);
  measured.disturbance = DisturbanceOf(passes);
  return measured;
}

Job ToProfile(const std::string& name, const Engine& engine, const LayerMeasurement& measured,
              int passes) {
  Job job;
  job.set_name(name);
  job.mutable_training()->set_engine(Training::REPLAY);
  if (measured.disturbance) {
    Disturbance& disturbance = *job.mutable_cluster()->mutable_disturbance();
    disturbance = *measured.disturbance;
    // Several passes even out; stalls come by the time that is computed.
    disturbance.set_iteration_spread(disturbance.iteration_spread() / std::sqrt(passes));
    disturbance.set_layer_spread(disturbance.layer_spread() / std::sqrt(passes));
  }
  if (const auto rate = ProductRate(engine, measured)) job.mutable_cluster()->set_flops(*rate);
  Replay& replay = *job.mutable_training()->mutable_replay();
  replay.set_batch(static_cast<int32_t>(engine.batch() * passes));
  // A profile's times are means, of which what stalls take is a part. Medians are without it.
  const double means = measured.disturbance ? StallFactor(*measured.disturbance) : 1;
  std::set<std::string> names;
  const Replay declared = ReplayOf(engine.model());
  for (int step = 0; step < engine.steps(); ++step) {
    const StepTimes& times = measured.steps[step];
    ReplayLayer& layer = *replay.add_layers();
    if (const auto index = engine.layer_of_step(step)) {
      layer = declared.layers(*index);
    } else {
      // One that is not trained has no parameters in a replay, and so is no InnerProduct.
      const bool is_product = times.type == "InnerProduct";
      layer.set_type(is_product ? "InnerProduct without factors" : times.type);
    }
    layer.set_name(UniqueName(times.name, names));
    layer.set_forward_ms(times.forward_ms * means * passes);
    layer.set_backward_ms(times.backward_ms * means * passes);
  }
  return job;
}

}  // namespace poseidon
