// Which node of a job is lost next, and when: each fails by itself, at exponential intervals.
//
//   LossDraws draws(mtbf, seed, nodes);
//   const NodeLoss loss = draws.Next();            // of all nodes the first
//   draws.Replace(loss.node, loss.when + 60);      // another process can fail from then on
//
// The same seed gives the same nodes, and times in proportion to the mean as long as replacements
// take next to nothing beside it. Not thread-safe; a value.
#pragma once

#include <cstdint>
#include <queue>
#include <random>
#include <vector>

#include "transport/address.h"

namespace poseidon {

struct NodeLoss {
  double when = 0;  // seconds
  NodeId node;
};

class LossDraws {
 public:
  // `mtbf`: mean seconds from a node's beginning to its failure, above 0. All begin at 0.
  LossDraws(double mtbf, uint64_t seed, const std::vector<NodeId>& nodes);

  // There must be one.
  NodeLoss Next();
  // What is in the node's place begins at `begin`.
  void Replace(const NodeId& node, double begin);
  size_t size() const { return losses_.size(); }

 private:
  struct Later {
    bool operator()(const NodeLoss& a, const NodeLoss& b) const { return a.when > b.when; }
  };

  double mtbf_;
  std::mt19937_64 random_;
  std::priority_queue<NodeLoss, std::vector<NodeLoss>, Later> losses_;
};

}  // namespace poseidon
