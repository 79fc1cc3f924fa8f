#include "planner/cost/local_steps_model.h"

#include <algorithm>
#include <set>

#include "planner/cost/fragments.h"

namespace poseidon {
namespace {

// The layers of one fragment as a model, and the part of the plan that is about them.
struct FragmentPlan {
  Plan plan;
  ModelSpec model;
  std::vector<int> buckets;  // of the whole plan, in the order of the part's
};

FragmentPlan FragmentOf(const Plan& plan, const ModelSpec& model,
                        const std::vector<int>& fragment_of, int fragment) {
  FragmentPlan part{.plan = plan, .model = model, .buckets = {}};
  part.plan.clear_buckets();
  part.plan.clear_local_steps();
  part.model.clear_layers();
  for (int b = 0; b < plan.buckets_size(); ++b) {
    const int first = plan.buckets(b).first_layer();
    if (fragment_of[first] != fragment) continue;
    BucketPlan& bucket = *part.plan.add_buckets();
    bucket = plan.buckets(b);
    bucket.set_first_layer(part.model.layers_size());
    for (int layer = 0; layer < bucket.layer_count(); ++layer) {
      *part.model.add_layers() = model.layers(first + layer);
    }
    part.buckets.push_back(b);
  }
  return part;
}

void Delay(double seconds, PredictedTimes& times) {
  for (BucketTimes& bucket : times.buckets) {
    for (double* time : {&bucket.ready, &bucket.sent, &bucket.fresh, &bucket.needed}) {
      *time += seconds;
    }
  }
}

}  // namespace

PredictedTimes PredictLocalSteps(const Plan& plan, const ModelSpec& model,
                                 const std::vector<LayerTime>& layers,
                                 const PredictIteration& predict) {
  double step = 0;
  for (const LayerTime& layer : layers) step += layer.forward + layer.backward;
  Communication communication;
  communication.set_local_steps(plan.local_steps());
  communication.set_fragments(plan.fragments());
  const std::vector<int> fragment_of = FragmentOfLayer(model, plan.fragments());
  const double hidden = plan.overlap_steps() * step;
  PredictedTimes times;
  times.seconds = plan.local_steps() * step;
  times.buckets.resize(plan.buckets_size());
  double waited = 0;  // for fragments so far
  // There may be more fragments than layers, by far.
  for (const int fragment : std::set<int>(fragment_of.begin(), fragment_of.end())) {
    const FragmentPlan part = FragmentOf(plan, model, fragment_of, fragment);
    // Where nothing computes an iteration is its exchange.
    const PredictedTimes exchange =
        predict(part.plan, part.model, std::vector<LayerTime>(part.model.layers_size()));
    const double exposed = std::max(0.0, exchange.seconds - hidden);
    times.seconds += exposed;
    // Given up, as it takes longer than the whole may. So does the whole, since no more is hidden
    // than is computed.
    if (exchange.buckets.empty()) return {times.seconds, {}};
    const double begin = StepOfFragment(communication, fragment) * step + waited;
    waited += exposed;
    for (size_t i = 0; i < part.buckets.size(); ++i) {
      BucketTimes& bucket = times.buckets[part.buckets[i]];
      bucket = exchange.buckets[i];
      // Its own times count from the begin of an iteration of the exchange.
      bucket.ready = begin;
      bucket.sent = begin + exchange.buckets[i].sent - exchange.buckets[i].ready;
      bucket.fresh = begin + exchange.buckets[i].exchange;
      bucket.needed = begin + hidden;
    }
    // The last fragment is sent with the last step, and waited for in the iteration after, before
    // anything is sent there.
    if (fragment + 1 == plan.fragments() && plan.overlap_steps() > 0) Delay(exposed, times);
  }
  return times;
}

}  // namespace poseidon
