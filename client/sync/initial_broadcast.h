// InitialBroadcast: what a plan starts with of a bucket reaches all workers, chunk after chunk: the
// values where no server owns them, and the optimizer state where the workers update.
//
// Where worker 0 alone has it, it goes down a binary tree, so that no worker sends a chunk more
// than twice. Where the plan names holders, each of the other workers gets every chunk from one of
// these, and the chunks are spread over them.
#pragma once

#include <vector>

#include "client/sync/syncer.h"

namespace poseidon {

// Not thread-safe: part of a syncer.
class InitialBroadcast {
 public:
  struct Contents {
    bool values = false;
    bool optimizer_state = false;
  };

  // For `chunks`, indices in the bucket's plan.
  InitialBroadcast(std::shared_ptr<SyncContext> context, int bucket, std::vector<int> chunks,
                   const Contents& contents);

  static bool Carries(MessageKind kind) {
    return kind == MessageKind::kInitialValues || kind == MessageKind::kInitialOptimizerState;
  }
  // A worker that has it all: sends what is in its memory to those that get it from here.
  void Publish(Outbox& outbox);
  // Takes a frame of a kind that it carries into memory and passes it on to the children. kComplete
  // with the last one.
  FrameStatus Receive(const Envelope& envelope, Outbox& outbox);
  bool complete() const { return outstanding_ == 0; }
  // Whom missing frames come from.
  std::vector<NodeId> missing() const;

 private:
  // Values or optimizer_state.
  struct Part {
    MessageKind kind = MessageKind::kUnknown;
    std::span<float> memory;    // the bucket's; empty for phantoms
    int64_t floats = 0;         // for each parameter
    std::vector<bool> arrived;  // by index in the bucket's plan
  };

  // What this worker has of a chunk in its memory, as it is now.
  Payload OwnBody(const Part& part, int chunk) const;
  void SendToChildren(const Part& part, int chunk, const Payload& body, Outbox& outbox) const;
  // Whom this worker has the chunk from, and to whom it sends it.
  int Parent(int worker, int chunk) const;
  std::vector<int> Children(int chunk) const;
  const BucketPlan& plan() const { return context_->bucket(bucket_); }

  std::shared_ptr<SyncContext> context_;
  int bucket_;
  std::vector<int> chunks_;
  std::vector<Part> parts_;
  std::vector<int> beside_holders_;  // places of those that a holder may have to send to
  size_t outstanding_;               // frames
};

}  // namespace poseidon
