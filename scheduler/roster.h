// The roster: who has asked to take part and which rank each one has, until the view is complete.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/time.h"
#include "proto/wire.pb.h"
#include "transport/address.h"

namespace poseidon {

// Ranks are stable: a node that registers again (same incarnation) keeps its own; a node that wants
// a certain rank gets it or is refused; the others get the lowest free one in order of arrival.
class Roster {
 public:
  struct Answer {
    std::optional<wire::Node> admitted;  // with its rank
    std::string refusal;                 // why not, if not
    bool news = false;                   // admitted now for the first time
  };

  // `endpoints_per_node` is how many lanes a node must offer.
  Roster(int workers, int servers, int endpoints_per_node, uint64_t job_fingerprint);

  Answer Register(const wire::Register& request, Time now);
  // Forgets nodes that stopped repeating their registration; returns them.
  std::vector<wire::Node> DropSilent(Time now, Duration allowed_silence);

  bool complete() const;
  // Admitted nodes, servers and workers by rank.
  std::vector<wire::Node> nodes() const;
  // "2 workers (ranks 1, 3) and server 0"; empty if complete.
  std::string Missing() const;

 private:
  struct Entry {
    wire::Node node;
    uint64_t incarnation = 0;
    Time last_heard{};
  };

  int Limit(Role role) const { return role == Role::kWorker ? workers_ : servers_; }
  std::optional<int> FreeRank(Role role, int wanted) const;
  // What of the node does not fit this job; empty if all does.
  std::string DifferenceFromJob(const wire::Register& request) const;
  // Why FreeRank found none.
  std::string WhyNoRank(Role role, int wanted) const;
  // Returns the node with its rank.
  const wire::Node& Admit(const wire::Register& request, const NodeId& id, Time now);

  int workers_;
  int servers_;
  int endpoints_per_node_;
  uint64_t job_fingerprint_;
  std::map<NodeId, Entry> entries_;
  std::map<std::pair<Role, uint64_t>, NodeId> by_incarnation_;
};

}  // namespace poseidon
