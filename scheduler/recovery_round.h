// RecoveryRound: what the scheduler knows between the loss of a node and the moment at which the
// job goes on: who is lost, what the survivors have, and from where all can go on.
//
// A value; not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/time.h"
#include "proto/model.pb.h"
#include "proto/wire.pb.h"
#include "transport/address.h"

namespace poseidon {

// From where a job can go on.
struct Cut {
  // A chunk that one of the two servers that keep it has lost.
  struct Gap {
    int bucket = 0;
    int chunk = 0;
    Chunk::Recipient recipient = Chunk::NOBODY;
  };

  int64_t iteration = 0;
  // Ranks of the workers that have, or can go back to, its values, ascending; empty: none has them.
  std::vector<int> holders;
  std::vector<Gap> gaps;
  // Neither of the two servers has some chunk.
  bool lost_chunk = false;
};

// What survivors have told, by their ranks.
using HoldingsByRank = std::map<int, wire::Holdings>;

// The oldest version that any worker has which has all values, or any server of what it keeps: all
// versions are this one or the next (client/sync/kept_state.h), so all can go back to it. No
// iteration that every worker had finished before is done again.
Cut FindCut(const HoldingsByRank& workers, const HoldingsByRank& servers, const Plan& plan);

class RecoveryRound {
 public:
  // Holds are numbered from one more than `last_hold`.
  explicit RecoveryRound(uint32_t last_hold = 0) : hold_(last_hold) {}
  // Whether a node is lost, or the exchange hangs, and the job has not gone on yet.
  bool active() const { return since_.has_value(); }
  // A node, or the exchange, has been silent for so long, for this cause. The first that is said of
  // a round counts, and begins it.
  void Begin(const std::string& cause, Duration silent, Time now);
  void Lose(const wire::Node& node) { lost_.push_back(node); }
  // It goes as was asked for; it comes and takes nobody's place.
  void Leave(const wire::Node& node) { left_.push_back(node); }
  void Join(const wire::Node& node) { joined_.push_back(node); }
  // A next attempt: all are asked anew. No two holds of a job have one number.
  void BeginHold();
  uint32_t hold() const { return hold_; }
  // The answer to a hold of a worker or a server.
  void Add(const NodeId& node, const wire::Holdings& holdings) {
    (node.role == Role::kWorker ? workers_ : servers_)[node.rank] = holdings;
  }
  // No worker is left.
  bool nobody_answered() const { return workers_.empty(); }
  bool Has(const NodeId& node) const {
    return (node.role == Role::kWorker ? workers_ : servers_).contains(node.rank);
  }
  Cut FindCut(const Plan& plan) const { return poseidon::FindCut(workers_, servers_, plan); }

  const std::vector<wire::Node>& lost() const { return lost_; }
  const std::string& cause() const { return cause_; }
  // The job goes on from `iteration`; `reached` is the one that was begun last. Ends the round.
  wire::Recovered End(int64_t iteration, int64_t reached, Time now);

 private:
  uint32_t hold_;
  std::optional<Time> since_;
  std::vector<wire::Node> lost_;
  std::vector<wire::Node> left_;
  std::vector<wire::Node> joined_;
  std::string cause_;
  Duration silent_{};
  HoldingsByRank workers_;
  HoldingsByRank servers_;
};

}  // namespace poseidon
