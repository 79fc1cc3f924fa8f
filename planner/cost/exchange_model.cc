#include "planner/cost/exchange_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/cost/exchange_tables.h"
#include "planner/cost/nic_model.h"
#include "proto/bucket.h"

namespace poseidon {
namespace {

// Iterations are simulated until two in a row differ by less than this share.
constexpr double kSteady = 0.002;
// Of the time that the first values take: how far apart the workers begin that get them.
constexpr double kSpread = 0.05;
// The first two find an emptier network than the others; iterations that keep swinging are averaged
// over the last few.
constexpr int kFirstSteady = 2;
constexpr int kMostIterations = 7;
constexpr int kAveraged = 4;
// How much more than a limit is clearly more: iterations swing by less.
constexpr double kClearly = 1.1;

enum Kind : int {
  kStart,
  kStepDone,
  kReady,
  kGradient,
  kAnswered,
  kAnswer,
  kFactor,
  kRebuilt,
  kOnDevices,
  kReduce
};

int64_t Nanoseconds(double seconds) { return std::llround(seconds * 1e9); }
double InSeconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

// How far one worker has come with one chunk's all-reduce.
struct ReduceProgress {
  int iteration = -1;
  int next = 0;              // operation
  std::vector<int> arrived;  // by operation: the last iteration whose message is here
};

struct WorkerState {
  bool backward = false;
  bool waiting = false;
  int layer = 0;
  int iteration = 0;
  int64_t began = 0;         // of the iteration before
  int64_t begun = 0;         // of the current one
  int64_t to_host_free = 0;  // when the streams to and from the host are done with what they have
  int64_t to_devices_free = 0;
  // By bucket; times of the latest exchange.
  std::vector<int> fresh;  // the iteration for whose forward pass it is
  std::vector<int64_t> ready_at;
  std::vector<int64_t> fresh_at;
  std::vector<int64_t> needed_at;
  std::vector<int> arrived;                          // by bucket, and iteration in the window
  std::vector<std::vector<ReduceProgress>> reduces;  // by bucket and chunk
};

class Simulation {
 public:
  Simulation(const Plan& plan, const ModelSpec& model, const ClusterModel& cluster,
             const std::vector<LayerTime>& layers, ReduceShapes& shapes, double give_up)
      : plan_(plan),
        cluster_(cluster),
        give_up_(give_up),
        symmetric_(OneStandsForAll(plan)),
        // A worker may be one iteration ahead even under BSP: early frames count for the next.
        window_(std::max(plan.staleness(), 0) + 2),
        network_({.machines = symmetric_ ? 1 : cluster.machines(),
                  .lanes = plan.lanes(),
                  .goodput_bytes_per_second = cluster.goodput,
                  .latency = Nanoseconds(cluster.latency),
                  .message_cost = Nanoseconds(cluster.message_cost),
                  .send_buffer_bytes = cluster.send_buffer_bytes,
                  .symmetric = symmetric_}),
        bucket_of_(BucketOfLayer(plan)),
        buckets_(MakeBucketTables(plan, model, cluster, shapes)),
        sent_at_(buckets_.size()) {
    for (const LayerTime& layer : layers) {
      forward_.push_back(Nanoseconds(layer.forward));
      backward_.push_back(Nanoseconds(layer.backward));
    }
    for (const BucketTable& bucket : buckets_) {
      gradients_.emplace_back(bucket.chunks.size() * window_);
    }
    workers_.resize(symmetric_ ? 1 : plan.workers());
    for (size_t w = 0; w < workers_.size(); ++w) Prepare(w);
  }

  PredictedTimes Run() {
    for (int w = 0; w < WorkerCount(); ++w) {
      Frame start;
      start.kind = kStart;
      start.node = w;
      network_.SetTimer(StartOf(w), start);
    }
    while (!done_ && network_.now() <= most_) {
      const std::optional<Frame> frame = network_.Next();
      if (!frame) break;
      Handle(*frame);
    }
    if (!done_ && network_.now() > most_) return {kClearly * give_up_, {}};
    return Result();
  }

 private:
  // Workers never begin together: the first one has the values that the others must be sent. It
  // matters, for exchanges between pairs (halving-doubling) keep them apart ever after, which costs
  // up to a fifth of the iteration.
  int64_t StartOf(int w) const {
    if (w == 0) return 0;
    double bytes = 0;
    for (const BucketTable& bucket : buckets_) {
      bytes += static_cast<double>(FloatCount(*bucket.plan)) * sizeof(float);
    }
    return Nanoseconds(bytes / cluster_.goodput * (1 + kSpread * w / WorkerCount()));
  }

  int WorkerCount() const { return static_cast<int>(workers_.size()); }
  bool asynchronous() const { return plan_.staleness() < 0; }

  void Prepare(size_t w) {
    WorkerState& worker = workers_[w];
    worker.fresh.resize(buckets_.size());
    worker.ready_at.resize(buckets_.size());
    worker.fresh_at.resize(buckets_.size());
    worker.needed_at.resize(buckets_.size());
    worker.arrived.resize(buckets_.size() * window_);
    worker.reduces.resize(buckets_.size());
    for (size_t b = 0; b < buckets_.size(); ++b) {
      if (!IsAllReduce(buckets_[b].plan->scheme())) continue;
      for (const ChunkTable& chunk : buckets_[b].chunks) {
        ReduceProgress& progress = worker.reduces[b].emplace_back();
        progress.arrived.assign((*chunk.shape)[w].size(), -1);
      }
    }
  }

  void Handle(const Frame& frame) {
    if (frame.left > 0) sent_at_[frame.bucket] = std::max(sent_at_[frame.bucket], frame.left);
    switch (frame.kind) {
      case kStart:
        workers_[frame.node].begun = network_.now();
        return TryStep(frame.node);
      case kStepDone:
        return FinishStep(frame.node);
      case kReady:
        return SendBucket(frame.node, frame.bucket, frame.iteration);
      case kGradient:
        return TakeGradient(frame);
      case kAnswered:
        return Answer(frame);
      case kAnswer:
        return Count(frame.to, frame.bucket, frame.iteration);
      case kFactor:
        return TakeFactor(frame);
      case kRebuilt:
        return CopyToDevices(frame.node, frame.bucket, frame.iteration);
      case kOnDevices:
        return MakeFresh(frame.node, frame.bucket, frame.iteration);
      case kReduce:
        return TakeReduce(frame);
    }
  }

  // The compute loop.

  bool MayStart(const WorkerState& worker) const {
    if (asynchronous()) return true;
    const int wanted = worker.iteration - plan_.staleness();
    const auto fresh = [&](int b) { return worker.fresh[b] >= wanted; };
    if (!plan_.wait_for_all()) return fresh(bucket_of_[worker.layer]);
    for (int b = 0; b < static_cast<int>(buckets_.size()); ++b) {
      if (!fresh(b)) return false;
    }
    return true;
  }

  void TryStep(int w) {
    WorkerState& worker = workers_[w];
    const int b = bucket_of_[worker.layer];
    const bool enters = !worker.backward && buckets_[b].plan->first_layer() == worker.layer;
    if (!worker.backward) {
      if (!worker.waiting && enters) worker.needed_at[b] = network_.now();
      worker.waiting = !MayStart(worker);
      if (worker.waiting) return;
      if (enters && worker.iteration > 0) Record(worker, b);
    }
    Frame step;
    step.kind = kStepDone;
    step.node = w;
    network_.SetTimer((worker.backward ? backward_ : forward_)[worker.layer], step);
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
    const int64_t to_host = buckets_[b].to_host[worker.layer - buckets_[b].plan->first_layer()];
    worker.to_host_free = std::max(worker.to_host_free, network_.now()) + to_host;
    if (buckets_[b].plan->first_layer() == worker.layer) {
      worker.ready_at[b] = network_.now();
      if (!plan_.no_overlap()) GradientReady(w, b);
    }
    if (worker.layer > 0) {
      --worker.layer;
      return TryStep(w);
    }
    if (plan_.no_overlap()) {
      for (int i = static_cast<int>(buckets_.size()) - 1; i >= 0; --i) GradientReady(w, i);
    }
    FinishIteration(w);
  }

  void FinishIteration(int w) {
    WorkerState& worker = workers_[w];
    const size_t iteration = worker.iteration;
    if (ends_.size() <= iteration) {
      ends_.resize(iteration + 1);
      finished_.resize(iteration + 1);
    }
    ends_[iteration] += InSeconds(network_.now()) / WorkerCount();
    if (++finished_[iteration] == WorkerCount()) {
      done_ = IsSteady(iteration);
      // The last worker begins the next one here.
      if (std::isfinite(give_up_)) most_ = network_.now() + Nanoseconds(kClearly * give_up_);
    }
    worker.began = worker.begun;
    worker.begun = network_.now();
    worker.backward = false;
    ++worker.iteration;
    TryStep(w);
  }

  double Length(size_t iteration) const { return ends_[iteration] - ends_[iteration - 1]; }

  bool IsSteady(size_t iteration) const {
    return iteration >= kFirstSteady && (iteration + 1 >= kMostIterations || IsAlike(iteration));
  }
  bool IsAlike(size_t iteration) const {
    const double length = Length(iteration);
    return std::abs(length - Length(iteration - 1)) <= kSteady * length;
  }

  // The exchange of the iteration before, whose result the forward pass takes now.
  void Record(const WorkerState& worker, int b) {
    const size_t iteration = worker.iteration - 1;
    if (times_.size() <= iteration) times_.resize(iteration + 1, Buckets(buckets_.size()));
    BucketTimes& times = times_[iteration][b];
    const int64_t sent = std::max(sent_at_[b], worker.ready_at[b]);
    const int64_t exchange = std::max<int64_t>(worker.fresh_at[b] - worker.ready_at[b], 0);
    times.exchange += InSeconds(exchange) / WorkerCount();
    times.ready += InSeconds(worker.ready_at[b] - worker.began) / WorkerCount();
    times.sent += InSeconds(sent - worker.began) / WorkerCount();
    times.fresh += InSeconds(worker.fresh_at[b] - worker.began) / WorkerCount();
    times.needed += InSeconds(worker.needed_at[b] - worker.began) / WorkerCount();
  }

  // Of the last iteration that all workers have finished.
  PredictedTimes Result() const {
    size_t last = finished_.size();
    while (last > 0 && finished_[last - 1] < WorkerCount()) --last;
    const size_t iteration = last - 1;
    const bool swings = iteration + 1 >= kMostIterations && !IsAlike(iteration);
    const size_t averaged = swings ? kAveraged : 2;
    const double seconds = ends_[iteration] - ends_[iteration - averaged];
    return {seconds / static_cast<double>(averaged), times_[iteration - 1]};
  }

  // Exchanges.

  void GradientReady(int w, int b) {
    Frame ready;
    ready.kind = kReady;
    ready.node = w;
    ready.bucket = b;
    ready.iteration = workers_[w].iteration;
    const int64_t copying = workers_[w].to_host_free - network_.now();
    if (copying > 0) return network_.SetTimer(copying, ready);
    SendBucket(w, b, ready.iteration);
  }

  // `c` is the chunk; any of a bucket that travels as factors.
  Frame Message(Kind kind, int from, int to, int b, int c, int iteration, int64_t bytes) const {
    const BucketPlan& bucket = *buckets_[b].plan;
    Frame frame;
    frame.kind = kind;
    frame.from_server = kind == kAnswer;
    frame.to_server = kind == kGradient || (kind == kFactor && bucket.scheme() == ADAM);
    frame.lane = UsesFactors(bucket.scheme()) ? bucket.lane() : bucket.chunks(c).lane();
    frame.chunk = c;
    frame.from = from;
    frame.to = to;
    frame.priority = PriorityOf(plan_, b, iteration);
    frame.bytes = bytes;
    frame.node = from;
    frame.bucket = b;
    frame.iteration = iteration;
    return frame;
  }

  void SendBucket(int w, int b, int iteration) {
    const BucketTable& bucket = buckets_[b];
    switch (bucket.plan->scheme()) {
      case SFB:
        return BroadcastFactors(w, b, iteration);
      case ADAM:
        return SendFactors(w, bucket.chunks.front().server_machine, b, iteration, 0);
      case PS:
        for (const int c : bucket.order) {
          const ChunkTable& chunk = bucket.chunks[c];
          Frame frame = Message(kGradient, w, chunk.server_machine, b, c, iteration, chunk.up);
          frame.processing = chunk.add_time;
          network_.Send(frame);
        }
        return;
      default:
        for (const int c : bucket.order) {
          workers_[w].reduces[b][c].iteration = iteration;
          workers_[w].reduces[b][c].next = 0;
          Advance(w, b, c);
        }
    }
  }

  // `step` counts the hops of a factor around the ring.
  void SendFactors(int w, int to, int b, int iteration, int step) {
    for (const int64_t bytes : {buckets_[b].factors.u, buckets_[b].factors.v}) {
      Frame frame = Message(kFactor, w, to, b, 0, iteration, bytes);
      frame.step = step;
      network_.Send(frame);
    }
  }

  int Right(int w) const { return symmetric_ ? 0 : (w + 1) % plan_.workers(); }

  void BroadcastFactors(int w, int b, int iteration) {
    if (plan_.workers() > 1 && buckets_[b].plan->factor_ring()) {
      SendFactors(w, Right(w), b, iteration, 1);
    } else {
      for (int to = 0; to < plan_.workers(); ++to) {
        if (to != w) SendFactors(w, to, b, iteration, 1);
      }
    }
    Count(w, b, iteration);  // its own two
    Count(w, b, iteration);
  }

  void TakeFactor(const Frame& frame) {
    const BucketTable& bucket = buckets_[frame.bucket];
    if (bucket.plan->scheme() == ADAM) return CountAtServer(frame, 0, 2 * plan_.workers());
    if (bucket.plan->factor_ring() && frame.step + 1 < plan_.workers()) {
      Frame onward = frame;
      onward.from = frame.to;
      onward.node = frame.to;
      onward.to = Right(frame.to);
      onward.left = 0;
      ++onward.step;
      network_.Send(onward);
    }
    Count(frame.to, frame.bucket, frame.iteration);
  }

  void TakeGradient(const Frame& frame) {
    CountAtServer(frame, frame.chunk, asynchronous() ? 1 : plan_.workers());
  }

  void CountAtServer(const Frame& frame, int c, int awaited) {
    int& count = gradients_[frame.bucket][c * window_ + frame.iteration % window_];
    if (++count < awaited) return;
    count = 0;
    Frame answered = frame;
    answered.kind = kAnswered;
    answered.left = 0;
    answered.from = frame.to;
    const int64_t duration = buckets_[frame.bucket].chunks[c].answer_time;
    if (duration > 0) return network_.Occupy(duration, answered);
    Answer(answered);
  }

  void Answer(const Frame& frame) {
    const BucketTable& bucket = buckets_[frame.bucket];
    const bool adam = bucket.plan->scheme() == ADAM;
    const int first = adam ? 0 : frame.chunk;
    const int last = adam ? bucket.plan->chunks_size() : frame.chunk + 1;
    for (int c = first; c < last; ++c) {
      for (int w = 0; w < plan_.workers(); ++w) {
        if (asynchronous() && w != frame.node) continue;
        Frame answer = Message(kAnswer, frame.from, w, frame.bucket, c, frame.iteration,
                               bucket.chunks[c].down);
        answer.processing = bucket.chunks[c].answered_time;
        network_.Send(answer);
      }
    }
  }

  void Count(int w, int b, int iteration) {
    int& arrived = workers_[w].arrived[b * window_ + iteration % window_];
    if (++arrived < buckets_[b].awaited) return;
    arrived = 0;
    const int64_t duration = buckets_[b].rebuild_time;
    if (duration == 0) return CopyToDevices(w, b, iteration);
    network_.Occupy(duration, Message(kRebuilt, w, w, b, 0, iteration, 0));
  }

  void CopyToDevices(int w, int b, int iteration) {
    if (buckets_[b].to_devices == 0) return MakeFresh(w, b, iteration);
    int64_t& free = workers_[w].to_devices_free;
    free = std::max(free, network_.now()) + buckets_[b].to_devices;
    network_.SetTimer(free - network_.now(), Message(kOnDevices, w, w, b, 0, iteration, 0));
  }

  void MakeFresh(int w, int b, int iteration) {
    WorkerState& worker = workers_[w];
    worker.fresh[b] = std::max(worker.fresh[b], iteration + 1);
    worker.fresh_at[b] = network_.now();
    if (worker.waiting) TryStep(w);
  }

  void Advance(int w, int b, int c) {
    const BucketTable& bucket = buckets_[b];
    const ChunkTable& chunk = bucket.chunks[c];
    const ShapeOperations& operations = (*chunk.shape)[w];
    ReduceProgress& progress = workers_[w].reduces[b][c];
    for (; progress.next < static_cast<int>(operations.size()); ++progress.next) {
      const ShapeOperation& operation = operations[progress.next];
      if (!operation.send) {
        if (progress.arrived[progress.next] < progress.iteration) return;
        continue;
      }
      const int64_t floats = std::llround(operation.share * static_cast<double>(chunk.floats));
      const int64_t bytes = CodedBytes(plan_, *bucket.plan, floats) + cluster_.header_bytes;
      const int peer = symmetric_ ? 0 : operation.peer;
      Frame frame = Message(kReduce, w, peer, b, c, progress.iteration, bytes);
      frame.step = operation.awaited_as;
      const double per_float = operation.adds ? bucket.add_time : bucket.update_time;
      frame.processing = std::llround(per_float * static_cast<double>(floats));
      network_.Send(frame);
    }
    Count(w, b, progress.iteration);
  }

  void TakeReduce(const Frame& frame) {
    ReduceProgress& progress = workers_[frame.to].reduces[frame.bucket][frame.chunk];
    progress.arrived[frame.step] = frame.iteration;
    if (progress.iteration == frame.iteration && progress.next == frame.step) {
      Advance(frame.to, frame.bucket, frame.chunk);
    }
  }

  using Buckets = std::vector<BucketTimes>;

  const Plan& plan_;
  const ClusterModel& cluster_;
  double give_up_;
  int64_t most_ = std::numeric_limits<int64_t>::max();  // when to give up, nanoseconds
  bool symmetric_;
  int window_;
  NicModel network_;
  std::vector<int> bucket_of_;  // by layer
  std::vector<int64_t> forward_;
  std::vector<int64_t> backward_;
  std::vector<BucketTable> buckets_;
  std::vector<WorkerState> workers_;
  std::vector<std::vector<int>>
      gradients_;                 // at servers, by bucket; chunk, iteration in the window
  std::vector<int64_t> sent_at_;  // by bucket: when the last message so far had left
  // By iteration.
  std::vector<Buckets> times_;
  std::vector<double> ends_;   // mean over workers, seconds
  std::vector<int> finished_;  // workers
  bool done_ = false;
};

}  // namespace

PredictedTimes SimulateExchange(const Plan& plan, const ModelSpec& model,
                                const ClusterModel& cluster, const std::vector<LayerTime>& layers,
                                ReduceShapes& shapes, double give_up) {
  return Simulation(plan, model, cluster, layers, shapes, give_up).Run();
}

}  // namespace poseidon
