// The roster: who has asked to take part and which rank each one gets, until the view is complete.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/time.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"
#include "scheduler/rank_assignment.h"
#include "transport/address.h"

namespace poseidon {

// A node that wants a certain rank gets it or is refused. The others have a place in order of
// arrival until all are there; then AssignRanks pairs workers and servers by host
// (rank_assignment.h). A node that registers again (same incarnation) keeps what it has.
class Roster {
 public:
  struct Answer {
    // With its rank; before AssignRanks, of a node that wants no certain one, with its place, by
    // which it can be told from the others.
    std::optional<wire::Node> admitted;
    bool has_rank = false;  // and not just a place
    std::string refusal;    // why not, if not
    bool news = false;      // admitted now for the first time
  };

  // `job` is the scheduler's, and so is `build`, of which nodes must be that name theirs (empty:
  // they may be of any); `least_endpoints` is how many lanes a node must offer.
  Roster(Job job, uint64_t job_fingerprint, std::string build, int least_endpoints);

  Answer Register(const wire::Register& request, Time now);
  // What of the node does not fit this job; empty if all does.
  std::string DifferenceFromJob(const wire::Register& request) const;
  // Who registers from now on must offer so many lanes.
  void Require(int least_endpoints) { least_endpoints_ = least_endpoints; }
  // The fewest lanes that one of those here offers; there is somebody.
  int LeastEndpoints() const;
  // If complete: gives those without a rank theirs, for good. Returns them.
  std::vector<wire::Node> AssignRanks();
  // Forgets nodes that stopped repeating their registration; returns them. Those of `members`,
  // which need not repeat it, stay.
  std::vector<wire::Node> DropSilent(Time now, Duration allowed_silence,
                                     const std::set<NodeId>& members);
  // The job has lost the node; its rank is free, and the process that had it never gets one again.
  void Forget(const NodeId& id);
  // The job goes on without anybody of this rank, which is free: nobody gets it any more.
  void Vacate(const NodeId& id) { vacated_.insert(id); }
  // From now on there are this many workers' ranks, no fewer than before, and processes may have
  // those that the job goes on without. Whoever takes one and falls silent before AssignRanks gives
  // it back.
  void OpenTo(int workers);
  const std::set<NodeId>& vacated() const { return vacated_; }
  // Ranks that nobody has and that are not vacated.
  std::vector<NodeId> MissingNodes() const;
  // What an earlier scheduler of the job knew: a node with its rank; and one that gets none again.
  void Restore(const wire::Node& node, uint64_t incarnation, Time now);
  void RestoreForgotten(uint64_t incarnation) { forgotten_.insert(incarnation); }
  // Of a node that is here.
  uint64_t IncarnationOf(const NodeId& id) const { return entries_.at(id).incarnation; }
  bool WasForgotten(uint64_t incarnation) const { return forgotten_.contains(incarnation); }
  // Who has this incarnation, if somebody here does.
  std::optional<NodeId> Find(uint64_t incarnation) const;
  // Whether the node could have the rank that it wants, or any, if another had not.
  bool IsTaken(const wire::Register& request) const;
  // While all who are here repeat their registration: whether none of those whose rank the node
  // could have, if it were free, is known to live, as they have not been heard since it first
  // asked. It is to ask again, until one of them is dropped or all are heard. No more wait so than
  // there are ranks.
  bool HolderMayBeGone(const wire::Register& request, Time now);
  // Whether the process with this incarnation waits so.
  bool AwaitsHolder(uint64_t incarnation) const { return asked_.contains(incarnation); }

  bool complete() const;
  // Admitted nodes, servers and workers by rank.
  std::vector<wire::Node> nodes() const;
  // "2 workers (ranks 1, 3) and server 0"; empty if complete.
  std::string Missing() const;
  // A sentence's part that names those at loopback addresses and says what to do, where others are
  // elsewhere, who would find themselves there; empty if there are none.
  std::string Unreachable() const;

 private:
  struct Entry {
    wire::Node node;
    uint64_t incarnation = 0;
    Time last_heard{};
    bool has_rank = false;
  };

  int Limit(Role role) const { return role == Role::kWorker ? workers_ : job_.cluster().servers(); }
  bool IsFree(const NodeId& id) const;
  // Of one role, by place; and back, by rank, with those added to `assigned` that had none.
  std::vector<Entry> TakeEntries(Role role);
  void PutBack(std::vector<Entry>& entries, const std::vector<int>& ranks,
               std::vector<wire::Node>& assigned);
  // Where ranks are vacated a place is a rank already. Returns those that had none.
  std::vector<wire::Node> ConfirmPlaces();
  // "" if the node is of this build, or either is of none that is known.
  std::string DifferenceOfBuild(const wire::Register& request) const;
  static std::vector<RankWish> WishesOf(const std::vector<Entry>& entries);
  std::optional<int> FreeRank(Role role, int wanted) const;
  // Why FreeRank found none.
  std::string WhyNoRank(Role role, int wanted) const;
  // Returns the node with its rank.
  const wire::Node& Admit(const wire::Register& request, const NodeId& id, Time now);

  Job job_;
  uint64_t job_fingerprint_;
  std::string build_;
  int least_endpoints_;
  std::map<NodeId, Entry> entries_;
  std::map<std::pair<Role, uint64_t>, NodeId> by_incarnation_;
  std::set<uint64_t> forgotten_;  // incarnations
  int workers_;                   // ranks
  bool open_ = false;             // OpenTo
  std::set<NodeId> vacated_;
  std::set<NodeId> opened_;         // taken again since the last AssignRanks
  std::map<uint64_t, Time> asked_;  // incarnations that wait for a holder's word, since when
};

}  // namespace poseidon
