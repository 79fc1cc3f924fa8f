#include "scheduler/recovery_round.h"

#include <algorithm>
#include <set>
#include <utility>

#include "proto/plan_members.h"

namespace poseidon {

namespace {

using ChunkPlace = std::pair<int, int>;  // bucket, chunk

// The chunks that each server has, by its place.
std::map<int, std::set<ChunkPlace>> ChunksAt(const HoldingsByRank& servers, const Plan& plan) {
  std::map<int, std::set<ChunkPlace>> chunks;
  for (const auto& [rank, holdings] : servers) {
    if (holdings.layout() != plan.layout()) continue;
    std::set<ChunkPlace>& own = chunks[PlaceOfServer(plan, rank)];
    for (const wire::HeldChunk& held : holdings.chunks()) {
      own.insert({held.bucket(), held.chunk()});
    }
  }
  return chunks;
}

}  // namespace

Cut FindCut(const HoldingsByRank& workers, const HoldingsByRank& servers, const Plan& plan) {
  Cut cut;
  std::optional<int64_t> oldest;
  const auto consider = [&oldest](int64_t iteration) {
    oldest = std::min(oldest.value_or(iteration), iteration);
  };
  for (const auto& [rank, holdings] : workers) {
    if (!holdings.complete()) continue;
    if (holdings.has_iteration()) consider(holdings.iteration());
    cut.holders.push_back(rank);
  }
  for (const auto& [rank, holdings] : servers) {
    if (holdings.layout() != plan.layout()) continue;
    for (const wire::HeldChunk& held : holdings.chunks()) consider(held.iteration());
  }
  cut.iteration = oldest.value_or(0);
  const std::map<int, std::set<ChunkPlace>> chunks = ChunksAt(servers, plan);
  const auto has = [&chunks](int server, const ChunkPlace& place) {
    const auto own = chunks.find(server);
    return own != chunks.end() && own->second.contains(place);
  };
  for (int b = 0; b < plan.buckets_size(); ++b) {
    for (int c = 0; c < plan.buckets(b).chunks_size(); ++c) {
      const Chunk& chunk = plan.buckets(b).chunks(c);
      if (!chunk.has_backup()) continue;
      const bool owner = has(chunk.server(), {b, c});
      const bool backup = has(chunk.backup(), {b, c});
      if (owner && backup) continue;
      cut.lost_chunk = cut.lost_chunk || (!owner && !backup);
      cut.gaps.push_back({b, c, owner ? Chunk::BACKUP : Chunk::OWNER});
    }
  }
  return cut;
}

void RecoveryRound::Begin(const std::string& cause, Duration silent, Time now) {
  if (active()) return;
  since_ = now;
  cause_ = cause;
  silent_ = silent;
}

void RecoveryRound::BeginHold() {
  ++hold_;
  workers_.clear();
  servers_.clear();
}

wire::Recovered RecoveryRound::End(int64_t iteration, int64_t reached, Time now) {
  wire::Recovered recovered;
  for (wire::Node& node : lost_) *recovered.add_lost() = std::move(node);
  for (wire::Node& node : left_) *recovered.add_left() = std::move(node);
  for (wire::Node& node : joined_) *recovered.add_joined() = std::move(node);
  recovered.set_cause(std::exchange(cause_, {}));
  recovered.set_iteration(iteration);
  recovered.set_reached(reached);
  recovered.set_detected_seconds(ToSeconds(silent_));
  recovered.set_restored_seconds(ToSeconds(now - *since_));
  since_.reset();
  lost_.clear();
  left_.clear();
  joined_.clear();
  workers_.clear();
  servers_.clear();
  return recovered;
}

}  // namespace poseidon
