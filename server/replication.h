// Replication: which chunks of a server's lane a second server keeps, too, and for which of them
// the owner waits until that one has what it sent. Only then are the workers answered, so nobody
// ever has values that are lost with one server (docs/recovery.md).
//
//   owner                                   backup
//     all gradients of t: update
//     kReplica(t), their sum ─────────────▶   the same update
//     ◀──────────── kReplicated(t + 1)
//     kValues(t + 1) to all workers
//
// Of a factor layer the backup is sent all factors as they come, which are few beside their sum,
// and updates beside the owner. Either may be the first.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "core/time.h"
#include "proto/model.pb.h"
#include "server/shard_state.h"
#include "transport/address.h"

namespace poseidon {

// Not thread-safe: a lane's.
class Replication {
 public:
  struct Copy {
    NodeId owner;
    NodeId backup;
    // Who gets from the other what the plan starts with.
    Chunk::Recipient recipient = Chunk::NOBODY;
  };
  struct Awaited {
    ChunkKey key;
    int64_t iteration = 0;
    Time since{};
  };

  // Of the lane of the server at this place.
  Replication(const Plan& plan, int server, int lane);

  // Whether the servers have what the plan starts with, and it comes from no worker.
  bool starts_from_servers() const { return starts_from_servers_; }
  // Null: the chunk is not kept twice, or not here.
  const Copy* Find(const ChunkKey& key) const;
  // Those that this lane owns or backs up.
  const std::map<ChunkKey, Copy>& copies() const { return copies_; }

  // The backup has been sent what makes it have the chunk for the forward pass of `iteration`.
  void Await(const ChunkKey& key, int64_t iteration, Time now) { awaited_[key] = {iteration, now}; }
  bool IsAwaited(const ChunkKey& key) const { return awaited_.contains(key); }
  // It says that it has. False: that was not awaited.
  bool Confirm(const ChunkKey& key, int64_t iteration);
  // What has been awaited the longest.
  std::optional<Awaited> oldest() const;

 private:
  bool starts_from_servers_;
  std::map<ChunkKey, Copy> copies_;
  std::map<ChunkKey, std::pair<int64_t, Time>> awaited_;
};

}  // namespace poseidon
