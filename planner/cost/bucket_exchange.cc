#include "planner/cost/bucket_exchange.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "proto/bucket.h"
#include "proto/compatibility.h"

namespace poseidon {

enum BucketExchange::Kind : int8_t {
  kReady = BucketExchange::kFirstKind,
  kBegin,
  kGradient,
  kRebuiltAtServer,
  kAnswer,
  kFactor,
  kRebuilt,
  kOnDevices,
  kReduce,
  kPublished,
  kInitial
};

BucketExchange::BucketExchange(const Plan& plan, const ModelSpec& model,
                               const ClusterModel& cluster, ReduceShapes& shapes, NicModel& network,
                               OnFresh on_fresh)
    : plan_(plan),
      cluster_(cluster),
      // A worker may be one iteration ahead even under BSP: early frames count for the next.
      window_(std::max(plan.staleness(), 0) + 2),
      network_(network),
      on_fresh_(std::move(on_fresh)),
      buckets_(MakeBucketTables(plan, model, cluster, shapes)),
      sent_at_(buckets_.size()) {
  for (const BucketTable& bucket : buckets_) {
    handled_.emplace_back(bucket.chunks.size() * window_);
    if (plan_.staleness() > 0) {
      stale_.emplace_back(bucket.chunks.size(),
                          StaleChunk{0, std::vector<int>(plan_.workers(), -1)});
    }
  }
  reached_ = handled_;
  const int representatives = Representatives(plan, cluster);
  const int workers = representatives == 0 ? plan.workers() : representatives;
  for (int w = 0; w < workers; ++w) workers_.push_back(MakeWorker(w));
}

BucketExchange::Worker BucketExchange::MakeWorker(int worker) const {
  Worker made;
  made.initial.resize(buckets_.size());
  made.arrived.resize(buckets_.size() * window_);
  for (const BucketTable& bucket : buckets_) {
    made.first_reduces.push_back(made.reduces.size());
    if (!IsAllReduce(bucket.plan->scheme())) continue;
    for (const ChunkTable& chunk : bucket.chunks) {
      made.reduces.push_back({.arrived = made.messages.size()});
      made.messages.resize(made.messages.size() + (*chunk.shape)[worker].size(), -1);
    }
  }
  return made;
}

// Workers that are ahead may be in the next iteration while others still send this one's.
void BucketExchange::NoteLeft(const Frame& frame) {
  LastLeft& last = sent_at_[frame.bucket][frame.iteration & 1];
  if (frame.iteration > last.iteration) last = {frame.iteration, 0};
  if (frame.iteration == last.iteration) last.when = std::max(last.when, frame.left);
}

void BucketExchange::OnFrame(const Frame& frame) {
  if (frame.left > 0) NoteLeft(frame);
  switch (static_cast<Kind>(frame.kind)) {
    case kReady:
      return PostToLanes(frame);
    case kBegin:
      return SendPart(frame.node, frame.bucket, frame.step, frame.iteration);
    case kGradient:
      return TakeGradient(frame);
    case kRebuiltAtServer:
      return Answer(frame);
    case kAnswer:
      return Count(frame.to, frame.bucket, frame.iteration);
    case kFactor:
      return TakeFactor(frame);
    case kRebuilt:
      return CopyToDevices(frame.node, frame.bucket, frame.iteration);
    case kOnDevices:
      return on_fresh_(frame.node, frame.bucket, frame.iteration);
    case kReduce:
      return TakeReduce(frame);
    case kPublished:
      for (int w = 0; w < plan_.workers(); ++w) SendInitial(kInitial, frame.to, w, frame);
      return;
    case kInitial:
      return TakeInitial(frame);
  }
}

void BucketExchange::PublishInitial() {
  for (int b = 0; b < static_cast<int>(buckets_.size()); ++b) {
    const BucketPlan& bucket = *buckets_[b].plan;
    for (int c = 0; c < bucket.chunks_size(); ++c) {
      Frame initial;
      initial.bucket = b;
      initial.chunk = c;
      if (UsesServers(bucket.scheme())) {
        SendInitial(kPublished, 0, buckets_[b].chunks[c].server_machine, initial);
      } else {
        SendInitialToChildren(0, initial);
      }
    }
    if (!UsesServers(bucket.scheme())) on_fresh_(0, b, -1);
  }
}

void BucketExchange::SendInitial(Kind kind, int from, int to, const Frame& initial) {
  const int b = initial.bucket;
  const Chunk& chunk = buckets_[b].plan->chunks(initial.chunk);
  const int64_t bytes = int64_t{sizeof(float)} * chunk.size() + cluster_.header_bytes;
  Frame frame = Message(kind, from, to, b, initial.chunk, 0, bytes);
  frame.lane = chunk.lane();
  frame.to_server = kind == kPublished;
  frame.from_server = kind == kInitial && UsesServers(buckets_[b].plan->scheme());
  network_.Send(frame);
}

void BucketExchange::SendInitialToChildren(int worker, const Frame& initial) {
  for (int child = 2 * worker + 1; child <= 2 * worker + 2; ++child) {
    if (child < simulated()) SendInitial(kInitial, worker, child, initial);
  }
}

void BucketExchange::TakeInitial(const Frame& frame) {
  const BucketPlan& bucket = *buckets_[frame.bucket].plan;
  if (!UsesServers(bucket.scheme())) SendInitialToChildren(frame.to, frame);
  int& arrived = workers_[frame.to].initial[frame.bucket];
  if (++arrived == bucket.chunks_size()) on_fresh_(frame.to, frame.bucket, -1);
}

void BucketExchange::CopyToHost(int worker, int bucket, int layer) {
  const int64_t duration = buckets_[bucket].to_host[layer - buckets_[bucket].plan->first_layer()];
  int64_t& free = workers_[worker].to_host_free;
  free = std::max(free, network_.now()) + duration;
}

void BucketExchange::GradientReady(int worker, int bucket, int iteration) {
  Frame ready;
  ready.kind = kReady;
  ready.node = worker;
  ready.bucket = bucket;
  ready.iteration = iteration;
  const int64_t copying = workers_[worker].to_host_free - network_.now();
  if (copying > 0) return network_.SetTimer(copying, ready);
  PostToLanes(ready);
}

void BucketExchange::PostToLanes(const Frame& ready) {
  const std::vector<LanePart>& parts = buckets_[ready.bucket].parts;
  for (size_t part = 0; part < parts.size(); ++part) {
    Frame post = ready;
    post.kind = kBegin;
    post.from = ready.node;
    post.to = ready.node;
    post.lane = parts[part].lane;
    post.processing = parts[part].alone_time;
    post.step = static_cast<int>(part);
    network_.Post(post);
  }
}

Frame BucketExchange::Message(Kind kind, int from, int to, int b, int c, int iteration,
                              int64_t bytes) const {
  const BucketPlan& bucket = *buckets_[b].plan;
  Frame frame;
  frame.kind = kind;
  frame.from_server = kind == kAnswer;
  frame.to_server = kind == kGradient || (kind == kFactor && bucket.scheme() == ADAM);
  frame.lane = UsesFactors(bucket.scheme()) ? bucket.lane() : bucket.chunks(c).lane();
  frame.chunk = c;
  frame.from = from;
  frame.to = to;
  frame.priority = static_cast<int>(PriorityOf(plan_, b, iteration));  // of a few iterations
  frame.bytes = bytes;
  frame.node = from;
  frame.bucket = b;
  frame.iteration = iteration;
  return frame;
}

void BucketExchange::SendPart(int w, int b, int part, int iteration) {
  const BucketTable& bucket = buckets_[b];
  switch (bucket.plan->scheme()) {
    case SFB:
      return BroadcastFactors(w, b, iteration);
    case ADAM:
      return SendFactors(w, bucket.chunks.front().server_machine, b, iteration, 0);
    case PS:
      for (const int c : bucket.parts[part].chunks) {
        const ChunkTable& chunk = bucket.chunks[c];
        Frame frame = Message(kGradient, w, chunk.server_machine, b, c, iteration, chunk.up);
        frame.processing = chunk.add_time;
        network_.Send(frame);
      }
      return;
    default:
      for (const int c : bucket.parts[part].chunks) {
        ReduceProgress& progress = workers_[w].ReduceOf(b, c);
        progress.iteration = iteration;
        progress.next = 0;
        Advance(w, b, c);
      }
  }
}

void BucketExchange::SendFactors(int w, int to, int b, int iteration, int step) {
  for (const int64_t bytes : {buckets_[b].factors.u, buckets_[b].factors.v}) {
    Frame frame = Message(kFactor, w, to, b, 0, iteration, bytes);
    frame.step = step;
    network_.Send(frame);
  }
}

int BucketExchange::OtherWorker(int w, int other) const {
  if (simulated() == plan_.workers()) return other <= w ? other - 1 : other;
  return (w + other) % simulated();
}

void BucketExchange::BroadcastFactors(int w, int b, int iteration) {
  if (plan_.workers() > 1 && buckets_[b].plan->factor_ring()) {
    SendFactors(w, Right(w), b, iteration, 1);
  } else {
    for (int other = 1; other < plan_.workers(); ++other) {
      SendFactors(w, OtherWorker(w, other), b, iteration, 1);
    }
  }
  Count(w, b, iteration);  // its own two
  Count(w, b, iteration);
}

void BucketExchange::TakeFactor(const Frame& frame) {
  const BucketTable& bucket = buckets_[frame.bucket];
  if (bucket.plan->scheme() == ADAM) return TakeFactorAtServer(frame);
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

bool BucketExchange::IsLast(const Frame& frame, std::vector<std::vector<int>>& counts) const {
  const bool factors = frame.kind == kFactor;
  const int awaited = factors ? 2 * plan_.workers() : asynchronous() ? 1 : plan_.workers();
  int& count = counts[frame.bucket][frame.chunk * window_ + frame.iteration % window_];
  if (++count < awaited) return false;
  count = 0;
  return true;
}

int64_t BucketExchange::FurtherProcessing(const Frame& frame) {
  if (frame.kind != kGradient || !IsLast(frame, reached_)) return 0;
  return buckets_[frame.bucket].chunks[frame.chunk].answer_time;
}

void BucketExchange::TakeGradient(const Frame& frame) {
  const bool last = IsLast(frame, handled_);
  if (plan_.staleness() > 0) return AnswerStale(frame, last);
  if (last) Answer(frame);
}

void BucketExchange::AnswerStale(const Frame& frame, bool last) {
  StaleChunk& chunk = stale_[frame.bucket][frame.chunk];
  chunk.unanswered[frame.node] = frame.iteration;
  if (last) chunk.applied = frame.iteration + 1;
  for (int w = 0; w < plan_.workers(); ++w) {
    int& iteration = chunk.unanswered[w];
    if (iteration < 0 || iteration + 1 - plan_.staleness() > chunk.applied) continue;
    Frame gradient = frame;
    gradient.iteration = iteration;
    AnswerTo(w, gradient, frame.chunk);
    iteration = -1;
  }
}

void BucketExchange::TakeFactorAtServer(const Frame& frame) {
  if (!IsLast(frame, handled_)) return;
  Frame rebuilt = frame;
  rebuilt.kind = kRebuiltAtServer;
  rebuilt.left = 0;
  network_.Work(buckets_[frame.bucket].chunks[frame.chunk].answer_time, rebuilt);
}

void BucketExchange::Answer(const Frame& frame) {
  const BucketTable& bucket = buckets_[frame.bucket];
  const bool adam = bucket.plan->scheme() == ADAM;
  const int first = adam ? 0 : frame.chunk;
  const int last = adam ? bucket.plan->chunks_size() : frame.chunk + 1;
  for (int c = first; c < last; ++c) {
    for (int w = 0; w < plan_.workers(); ++w) {
      if (!asynchronous() || w == frame.node) AnswerTo(w, frame, c);
    }
  }
}

void BucketExchange::AnswerTo(int worker, const Frame& frame, int chunk) {
  const ChunkTable& table = buckets_[frame.bucket].chunks[chunk];
  Frame answer =
      Message(kAnswer, frame.to, worker, frame.bucket, chunk, frame.iteration, table.down);
  answer.processing = table.answered_time;
  network_.Send(answer);
}

void BucketExchange::Count(int w, int b, int iteration) {
  int& arrived = workers_[w].arrived[b * window_ + iteration % window_];
  if (++arrived < buckets_[b].awaited) return;
  arrived = 0;
  const int64_t duration = buckets_[b].rebuild_time;
  if (duration == 0) return CopyToDevices(w, b, iteration);
  network_.Work(duration, Message(kRebuilt, w, w, b, 0, iteration, 0));
}

void BucketExchange::CopyToDevices(int w, int b, int iteration) {
  if (buckets_[b].to_devices == 0) return on_fresh_(w, b, iteration);
  int64_t& free = workers_[w].to_devices_free;
  free = std::max(free, network_.now()) + buckets_[b].to_devices;
  network_.SetTimer(free - network_.now(), Message(kOnDevices, w, w, b, 0, iteration, 0));
}

void BucketExchange::Advance(int w, int b, int c) {
  const BucketTable& bucket = buckets_[b];
  const ChunkTable& chunk = bucket.chunks[c];
  const ShapeOperations& operations = (*chunk.shape)[w];
  ReduceProgress& progress = workers_[w].ReduceOf(b, c);
  const int* const arrived = workers_[w].messages.data() + progress.arrived;
  for (; progress.next < static_cast<int>(operations.size()); ++progress.next) {
    const ShapeOperation& operation = operations[progress.next];
    if (!operation.send) {
      if (arrived[progress.next] < progress.iteration) return;
      continue;
    }
    const int64_t floats = std::llround(operation.share * static_cast<double>(chunk.floats));
    const int64_t bytes = CodedBytes(plan_, *bucket.plan, floats) + cluster_.header_bytes;
    Frame frame = Message(kReduce, w, operation.peer, b, c, progress.iteration, bytes);
    frame.step = operation.awaited_as;
    const double per_float = operation.adds ? bucket.add_time : bucket.update_time;
    frame.processing = std::llround(per_float * static_cast<double>(floats));
    network_.Send(frame);
  }
  Count(w, b, progress.iteration);
}

void BucketExchange::TakeReduce(const Frame& frame) {
  Worker& worker = workers_[frame.to];
  const ReduceProgress& progress = worker.ReduceOf(frame.bucket, frame.chunk);
  worker.messages[progress.arrived + frame.step] = frame.iteration;
  if (progress.iteration == frame.iteration && progress.next == frame.step) {
    Advance(frame.to, frame.bucket, frame.chunk);
  }
}

}  // namespace poseidon
