#include "scheduler/rank_assignment.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace poseidon {
namespace {

// The nodes of one role, and who has which rank so far.
class Ranks {
 public:
  explicit Ranks(const std::vector<RankWish>& nodes)
      : nodes_(nodes), ranks_(nodes.size(), -1), holders_(nodes.size()) {
    for (size_t node = 0; node < nodes.size(); ++node) {
      if (nodes[node].wanted >= 0) Give(node, nodes[node].wanted);
    }
  }

  size_t size() const { return nodes_.size(); }
  bool Has(size_t node) const { return ranks_[node] >= 0; }
  const std::string& host(size_t node) const { return nodes_[node].host; }
  // Who has the rank; none as well for one beyond the last.
  std::optional<size_t> Holder(int rank) const {
    return IsRank(rank) ? holders_[static_cast<size_t>(rank)] : std::nullopt;
  }
  bool IsFree(int rank) const { return IsRank(rank) && !Holder(rank); }

  void Give(size_t node, int rank) {
    ranks_[node] = rank;
    holders_[static_cast<size_t>(rank)] = node;
  }
  // The first node on the host that has no rank yet.
  std::optional<size_t> FindOn(const std::string& host) const {
    for (size_t node = 0; node < size(); ++node) {
      if (!Has(node) && nodes_[node].host == host) return node;
    }
    return std::nullopt;
  }
  // Ranks for all who have none: the lowest free one each.
  std::vector<int> Complete() && {
    int rank = 0;
    for (size_t node = 0; node < size(); ++node) {
      if (Has(node)) continue;
      while (!IsFree(rank)) ++rank;
      Give(node, rank);
    }
    return std::move(ranks_);
  }

 private:
  bool IsRank(int rank) const { return static_cast<size_t>(rank) < holders_.size(); }

  const std::vector<RankWish>& nodes_;
  std::vector<int> ranks_;                      // by node; -1: none yet
  std::vector<std::optional<size_t>> holders_;  // by rank
};

// Whoever wanted a certain rank gets a partner of its host.
void PairWithHolders(const Ranks& with, Ranks& others) {
  for (int rank = 0; rank < static_cast<int>(with.size()); ++rank) {
    const auto holder = with.Holder(rank);
    if (!holder || !others.IsFree(rank)) continue;
    if (const auto node = others.FindOn(with.host(*holder))) others.Give(*node, rank);
  }
}

// Pairs that nobody has asked for get the lowest ranks that are free in both roles.
void PairTheRest(Ranks& workers, Ranks& servers) {
  int rank = 0;
  const int common = static_cast<int>(std::min(workers.size(), servers.size()));
  for (size_t worker = 0; worker < workers.size(); ++worker) {
    if (workers.Has(worker)) continue;
    const auto server = servers.FindOn(workers.host(worker));
    if (!server) continue;
    while (rank < common && !(workers.IsFree(rank) && servers.IsFree(rank))) ++rank;
    if (rank == common) return;
    workers.Give(worker, rank);
    servers.Give(*server, rank);
  }
}

}  // namespace

AssignedRanks AssignRanks(const std::vector<RankWish>& workers,
                          const std::vector<RankWish>& servers) {
  Ranks of_workers(workers);
  Ranks of_servers(servers);
  PairWithHolders(of_servers, of_workers);
  PairWithHolders(of_workers, of_servers);
  PairTheRest(of_workers, of_servers);
  return {std::move(of_workers).Complete(), std::move(of_servers).Complete()};
}

}  // namespace poseidon
