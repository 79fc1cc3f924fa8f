// ShardActor: one data lane of a server, with the KV pairs that hash to it.
//
// Answers worker 0's kInitialValues and the last kGradient of an iteration with kValues to every
// worker, without being asked. Frames of another epoch, of a past iteration, or that arrive twice
// are counted and dropped; those that no correct worker could send are logged once per worker, too.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/time.h"
#include "core/trace.h"
#include "core/update_rule.h"
#include "proto/wire.pb.h"
#include "server/accumulator_pool.h"
#include "server/kv_pair.h"
#include "transport/actor.h"

namespace poseidon {

struct ShardOptions {
  int server = 0;  // rank
  int lane = 0;    // data lane, from 0
  uint64_t epoch = 0;
  Duration stall_deadline = Seconds(300);
  // No floats are held; sizes and times are as with them (simulation).
  bool phantom = false;
  Trace* trace = nullptr;  // outlives the actor; may be null
};

class ShardActor : public Actor {
 public:
  // Makes all memory. The plan and model must come from the scheduler's planner.
  ShardActor(const wire::PlanAndModel& plan, const ShardOptions& options);
  ~ShardActor() override;

  void OnStart(Outbox& outbox) override;
  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

  // Floats of values that this lane owns.
  int64_t floats() const;
  int64_t dropped_frames() const { return dropped_frames_; }

 private:
  struct Key {
    uint32_t bucket = 0;
    uint32_t chunk = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct Memory;

  // Since when a pair waits for workers, if it does.
  std::optional<Time> WaitingSince(const KvPair& pair) const;
  // What a pair waits for, and from whom.
  wire::Stalled StallOf(const Key& key, const KvPair& pair) const;
  void SendValues(const Key& key, const KvPair& pair, Outbox& outbox);
  void Drop(const Envelope& envelope, const char* why, bool suspicious);

  ShardOptions options_;
  int workers_;
  UpdateRule rule_;
  std::vector<std::string> layer_names_;
  std::shared_ptr<Memory> memory_;  // shared with the frames on their way out
  std::map<Key, KvPair> pairs_;
  std::unique_ptr<AccumulatorPool> pool_;
  std::optional<Time> started_;  // when the training started
  int64_t dropped_frames_ = 0;
  std::set<NodeId> logged_;  // peers that a log line was written about
};

}  // namespace poseidon
