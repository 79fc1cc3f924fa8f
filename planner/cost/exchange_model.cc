#include "planner/cost/exchange_model.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "planner/cost/bucket_exchange.h"
#include "planner/cost/exchange_tables.h"
#include "planner/cost/iteration_record.h"
#include "planner/cost/nanoseconds.h"
#include "planner/cost/nic_model.h"
#include "proto/bucket.h"

namespace poseidon {
namespace {

// How much more than a limit is clearly more: iterations swing by less.
constexpr double kClearly = 1.1;

// The compute loop's frames; the exchange has others.
enum Kind : int8_t { kStart, kStepDone };
static_assert(kStepDone < BucketExchange::kFirstKind);

// Those that stand for all stand for the slowest: where all do the same, they go at its pace.
std::vector<double> GoodputsOf(const Plan& plan, const ClusterModel& cluster) {
  const int representatives = Representatives(plan, cluster);
  if (representatives > 0) return std::vector<double>(representatives, cluster.LeastGoodput());
  std::vector<double> goodputs(cluster.machines(), cluster.goodput);
  for (const auto& [machine, deviation] : cluster.deviations) {
    goodputs[machine] = cluster.GoodputOf(machine);
  }
  return goodputs;
}

NicModelOptions NetworkOf(const Plan& plan, const ClusterModel& cluster,
                          std::function<int64_t(const Frame&)> further_processing) {
  return {.lanes = plan.lanes(),
          .goodput_bytes_per_second = GoodputsOf(plan, cluster),
          .latency = Nanoseconds(cluster.latency),
          .message_cost = Nanoseconds(cluster.message_cost),
          .send_buffer_bytes = cluster.send_buffer_bytes,
          .representative = Representatives(plan, cluster) > 0,
          .further_processing = std::move(further_processing)};
}

// How far one worker's compute loop has come.
struct WorkerState {
  double pace = 1;  // of the slowest worker's times
  bool backward = false;
  bool waiting = false;
  int layer = 0;
  int iteration = 0;
  int64_t began = 0;  // of the iteration before
  int64_t begun = 0;  // of the current one
  // By bucket; times of the latest exchange.
  std::vector<int> fresh;  // the iteration for whose forward pass it is; -1: it has no values
  std::vector<int64_t> ready_at;
  std::vector<int64_t> fresh_at;
  std::vector<int64_t> needed_at;
};

// The compute loops of the workers: they wait for buckets, compute, and hand gradients to the
// exchange.
class Simulation {
 public:
  Simulation(const Plan& plan, const ModelSpec& model, const ClusterModel& cluster,
             const std::vector<LayerTime>& layers, ReduceShapes& shapes, double give_up)
      : plan_(plan),
        give_up_(give_up),
        network_(
            NetworkOf(plan, cluster,
                      [this](const Frame& frame) { return exchange_.FurtherProcessing(frame); })),
        exchange_(plan, model, cluster, shapes, network_,
                  [this](int w, int b, int iteration) { MakeFresh(w, b, iteration); }),
        bucket_of_(BucketOfLayer(plan)),
        workers_(Representatives(plan, cluster) == 0 ? plan.workers()
                                                     : Representatives(plan, cluster)),
        record_(WorkerCount(), plan.buckets_size(),
                PaceOf(plan.staleness(), cluster.deviations.empty())) {
    for (const LayerTime& layer : layers) {
      forward_.push_back(Nanoseconds(layer.forward));
      backward_.push_back(Nanoseconds(layer.backward));
    }
    for (int w = 0; w < WorkerCount(); ++w) {
      WorkerState& worker = workers_[w];
      if (Representatives(plan, cluster) == 0) {
        worker.pace = cluster.ComputeFactorOf(w) / cluster.SlowestComputeFactor();
      }
      worker.fresh.resize(plan.buckets_size(), -1);
      worker.ready_at.resize(plan.buckets_size());
      worker.fresh_at.resize(plan.buckets_size());
      worker.needed_at.resize(plan.buckets_size());
    }
  }
  // The exchange calls back.
  Simulation(const Simulation&) = delete;
  Simulation& operator=(const Simulation&) = delete;

  PredictedTimes Run() {
    for (int w = 0; w < WorkerCount(); ++w) {
      Frame start;
      start.kind = kStart;
      start.node = w;
      network_.SetTimer(0, start);
    }
    // Workers never begin together: the first one has the values that the others must be sent.
    // Those that are ahead stay ahead where they exchange in pairs or wait for servers: many a plan
    // has two steady states, of which one takes up to a third longer, and the beginning decides.
    exchange_.PublishInitial();
    while (!done_ && network_.now() <= most_) {
      const std::optional<Frame> frame = network_.Next();
      CHECK(frame) << "the predicted exchange of " << plan_.workers()
                   << " workers has come to a halt";
      Handle(*frame);
    }
    if (!done_ && network_.now() > most_) return {kClearly * give_up_, {}};
    return record_.Result();
  }

 private:
  int WorkerCount() const { return static_cast<int>(workers_.size()); }

  void Handle(const Frame& frame) {
    switch (frame.kind) {
      case kStart:
        workers_[frame.node].begun = network_.now();
        return TryStep(frame.node);
      case kStepDone:
        return FinishStep(frame.node);
      default:
        return exchange_.OnFrame(frame);
    }
  }

  bool MayStart(const WorkerState& worker) const {
    // With staleness, too: servers answer sooner then, but a worker waits for the answer.
    const auto fresh = [&](int b) { return worker.fresh[b] >= worker.iteration; };
    if (!plan_.wait_for_all()) return fresh(bucket_of_[worker.layer]);
    for (int b = 0; b < plan_.buckets_size(); ++b) {
      if (!fresh(b)) return false;
    }
    return true;
  }

  void TryStep(int w) {
    WorkerState& worker = workers_[w];
    const int b = bucket_of_[worker.layer];
    const bool enters = !worker.backward && plan_.buckets(b).first_layer() == worker.layer;
    if (!worker.backward) {
      if (!worker.waiting && enters) worker.needed_at[b] = network_.now();
      worker.waiting = !MayStart(worker);
      if (worker.waiting) return;
      if (enters && worker.iteration > 0) Record(worker, b);
    }
    Frame step;
    step.kind = kStepDone;
    step.node = w;
    const int64_t slowest = (worker.backward ? backward_ : forward_)[worker.layer];
    network_.SetTimer(std::llround(worker.pace * static_cast<double>(slowest)), step);
  }

  void FinishStep(int w) {
    WorkerState& worker = workers_[w];
    if (!worker.backward) {
      if (worker.layer + 1 < static_cast<int>(forward_.size())) {
        ++worker.layer;
      } else {
        worker.backward = true;
      }
      return TryStep(w);
    }
    const int b = bucket_of_[worker.layer];
    exchange_.CopyToHost(w, b, worker.layer);
    if (plan_.buckets(b).first_layer() == worker.layer) {
      worker.ready_at[b] = network_.now();
      if (!plan_.no_overlap()) exchange_.GradientReady(w, b, worker.iteration);
    }
    if (worker.layer > 0) {
      --worker.layer;
      return TryStep(w);
    }
    if (plan_.no_overlap()) {
      for (int i = plan_.buckets_size() - 1; i >= 0; --i) {
        exchange_.GradientReady(w, i, worker.iteration);
      }
    }
    FinishIteration(w);
  }

  void FinishIteration(int w) {
    WorkerState& worker = workers_[w];
    if (record_.AddEnd(worker.iteration, w, InSeconds(network_.now()))) {
      done_ = record_.IsSteady(worker.iteration);
      // The last worker begins the next one here.
      if (std::isfinite(give_up_)) most_ = network_.now() + Nanoseconds(kClearly * give_up_);
    }
    worker.began = worker.begun;
    worker.begun = network_.now();
    worker.backward = false;
    ++worker.iteration;
    TryStep(w);
  }

  // The exchange of the iteration before, whose result the forward pass takes now.
  void Record(const WorkerState& worker, int b) {
    record_.AddExchange(worker.iteration - 1, b,
                        {.began = worker.began,
                         .ready = worker.ready_at[b],
                         .sent = exchange_.sent_at(b, worker.iteration - 1),
                         .fresh = worker.fresh_at[b],
                         .needed = worker.needed_at[b]});
  }

  void MakeFresh(int w, int b, int iteration) {
    WorkerState& worker = workers_[w];
    worker.fresh[b] = std::max(worker.fresh[b], iteration + 1);
    worker.fresh_at[b] = network_.now();
    if (worker.waiting) TryStep(w);
  }

  const Plan& plan_;
  double give_up_;
  int64_t most_ = std::numeric_limits<int64_t>::max();  // when to give up, nanoseconds
  NicModel network_;
  BucketExchange exchange_;
  std::vector<int> bucket_of_;  // by layer
  std::vector<int64_t> forward_;
  std::vector<int64_t> backward_;
  std::vector<WorkerState> workers_;
  IterationRecord record_;
  bool done_ = false;
};

}  // namespace

PredictedTimes SimulateExchange(const Plan& plan, const ModelSpec& model,
                                const ClusterModel& cluster, const std::vector<LayerTime>& layers,
                                ReduceShapes& shapes, double give_up) {
  return Simulation(plan, model, cluster, layers, shapes, give_up).Run();
}

}  // namespace poseidon
