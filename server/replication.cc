#include "server/replication.h"

#include "proto/plan_members.h"

namespace poseidon {

Replication::Replication(const Plan& plan, int server, int lane)
    : starts_from_servers_(!plan.holders().empty()) {
  for (int b = 0; b < plan.buckets_size(); ++b) {
    for (int c = 0; c < plan.buckets(b).chunks_size(); ++c) {
      const Chunk& chunk = plan.buckets(b).chunks(c);
      if (!chunk.has_backup() || chunk.lane() != lane) continue;
      if (chunk.server() != server && chunk.backup() != server) continue;
      const ChunkKey key{static_cast<uint32_t>(b), static_cast<uint32_t>(c)};
      copies_[key] = {.owner = {Role::kServer, RankOfServer(plan, chunk.server())},
                      .backup = {Role::kServer, RankOfServer(plan, chunk.backup())},
                      .recipient = chunk.recipient()};
    }
  }
}

const Replication::Copy* Replication::Find(const ChunkKey& key) const {
  const auto copy = copies_.find(key);
  return copy == copies_.end() ? nullptr : &copy->second;
}

bool Replication::Confirm(const ChunkKey& key, int64_t iteration) {
  const auto awaited = awaited_.find(key);
  if (awaited == awaited_.end() || awaited->second.first != iteration) return false;
  awaited_.erase(awaited);
  return true;
}

std::optional<Replication::Awaited> Replication::oldest() const {
  std::optional<Awaited> oldest;
  for (const auto& [key, awaited] : awaited_) {
    if (oldest && oldest->since <= awaited.second) continue;
    oldest = {.key = key, .iteration = awaited.first, .since = awaited.second};
  }
  return oldest;
}

}  // namespace poseidon
