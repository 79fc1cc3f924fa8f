// BucketExchange: the messages of the exchange model. From where a worker's gradient of a bucket is
// ready to where the worker has the bucket's new values: what workers and servers send each other,
// and how long devices, servers and workers are busy in between.
//
// Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "planner/cost/cluster_model.h"
#include "planner/cost/exchange_tables.h"
#include "planner/cost/nic_model.h"
#include "planner/cost/reduce_shapes.h"
#include "proto/model.pb.h"

namespace poseidon {

class BucketExchange {
 public:
  // A worker has the bucket's values that the gradients of `iteration` made.
  using OnFresh = std::function<void(int worker, int bucket, int iteration)>;
  // Frames of lower kinds belong to whoever shares the network.
  static constexpr int kFirstKind = 2;

  // All but `model` outlives this. The network has a machine for each of
  // Representatives(plan, cluster), if there are any.
  BucketExchange(const Plan& plan, const ModelSpec& model, const ClusterModel& cluster,
                 ReduceShapes& shapes, NicModel& network, OnFresh on_fresh);

  // What worker 0 has before the first iteration goes to all, as values that "iteration -1" has
  // made: to the servers and from there to all workers, or down a binary tree of workers
  // (client/sync/initial_broadcast.h), or of their representatives.
  void PublishInitial();
  // A layer's gradient is computed; where workers have devices its copy to the host begins, behind
  // those before it.
  void CopyToHost(int worker, int bucket, int layer);
  // All gradients of the bucket are computed; it leaves as soon as they are on the host.
  void GradientReady(int worker, int bucket, int iteration);
  // What the network brings back of kind kFirstKind or above.
  void OnFrame(const Frame& frame);
  // NicModelOptions::further_processing: the update that a server makes with the last gradient of a
  // chunk.
  int64_t FurtherProcessing(const Frame& frame);

  // When the last message so far with a part of the bucket had left that is of this iteration or of
  // values that it has made, nanoseconds; 0 if none has, or two iterations have begun since.
  int64_t sent_at(int bucket, int iteration) const {
    const LastLeft& last = sent_at_[bucket][iteration & 1];
    return last.iteration == iteration ? last.when : 0;
  }

 private:
  enum Kind : int8_t;

  struct LastLeft {
    int iteration = -1;
    int64_t when = 0;
  };

  // How far one worker has come with one chunk's all-reduce.
  struct ReduceProgress {
    int iteration = -1;
    int next = 0;        // operation
    size_t arrived = 0;  // the first of its operations among Worker::messages
  };

  struct Worker {
    // When the streams to and from the host are done with what they have.
    int64_t to_host_free = 0;
    int64_t to_devices_free = 0;
    std::vector<int> initial;             // by bucket: chunks that have come
    std::vector<int> arrived;             // by bucket, and iteration in the window
    std::vector<size_t> first_reduces;    // by bucket
    std::vector<ReduceProgress> reduces;  // of all chunks of all buckets
    std::vector<int> messages;  // by operation of each: the last iteration whose message is here

    ReduceProgress& ReduceOf(int bucket, int chunk) {
      return reduces[first_reduces[bucket] + chunk];
    }
  };

  bool asynchronous() const { return plan_.staleness() < 0; }
  Worker MakeWorker(int worker) const;
  // `c` is the chunk; any of a bucket that travels as factors.
  Frame Message(Kind kind, int from, int to, int b, int c, int iteration, int64_t bytes) const;
  // A bucket is sent by lanes, when they are done with what has come before.
  void NoteLeft(const Frame& frame);
  void PostToLanes(const Frame& ready);
  void SendPart(int w, int b, int part, int iteration);
  // `step` counts the hops of a factor around the ring.
  void SendFactors(int w, int to, int b, int iteration, int step);
  int simulated() const { return static_cast<int>(workers_.size()); }
  int Right(int w) const { return (w + 1) % simulated(); }
  // The 1st, 2nd, ... of the workers besides `w`, in their order. Representatives of all get from
  // each other as many as a worker gets from all others, wherever these are.
  int OtherWorker(int w, int other) const;
  void BroadcastFactors(int w, int b, int iteration);
  void TakeFactor(const Frame& frame);
  void TakeGradient(const Frame& frame);
  // Whether all that the server awaits for a chunk's answer has come with this.
  bool IsLast(const Frame& frame, std::vector<std::vector<int>>& counts) const;
  void TakeFactorAtServer(const Frame& frame);
  void Answer(const Frame& frame);
  // With staleness: all that may be answered now, as in server/kv_pair.cc. `last`: with this
  // gradient the server has applied all of its iteration.
  void AnswerStale(const Frame& frame, bool last);
  void AnswerTo(int worker, const Frame& frame, int chunk);
  // The bucket is fresh when all messages that it awaits have come, and what follows is done.
  void Count(int w, int b, int iteration);
  void CopyToDevices(int w, int b, int iteration);
  // Goes on with a chunk's all-reduce until it has to wait.
  void Advance(int w, int b, int c);
  void TakeReduce(const Frame& frame);
  // The chunk that `initial` names.
  void SendInitial(Kind kind, int from, int to, const Frame& initial);
  void SendInitialToChildren(int worker, const Frame& initial);
  void TakeInitial(const Frame& frame);

  const Plan& plan_;
  const ClusterModel& cluster_;
  int window_;  // iterations that are under way at the same time
  NicModel& network_;
  OnFresh on_fresh_;
  std::vector<BucketTable> buckets_;
  std::vector<Worker> workers_;
  // At servers, by bucket; chunk, iteration in the window: what has reached their lanes, and what
  // these have handled.
  std::vector<std::vector<int>> reached_;
  std::vector<std::vector<int>> handled_;
  // Likewise of a chunk with staleness: iterations that are applied, and by worker the iteration of
  // its gradient that has not been answered; -1: there is none.
  struct StaleChunk {
    int applied = 0;
    std::vector<int> unanswered;
  };
  std::vector<std::vector<StaleChunk>> stale_;
  std::vector<std::array<LastLeft, 2>> sent_at_;  // by bucket; of even and of odd iterations
};

}  // namespace poseidon
