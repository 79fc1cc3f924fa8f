// Traitor: a node of a simulated job that sends anything under the name of any worker or server: a
// program gone wrong, or somebody who has the job's key. What it sends are envelopes of the job
// that it has seen, with changes that are well-formed mostly.
//
//     Random random(seed);
//     Traitor traitor([&](uint64_t below) { return random.Below(below); }, options);
//     SimulatedCluster cluster(options);
//     traitor.Disturb(cluster, 5, span);
//     cluster.Run(...);
#pragma once

#include <google/protobuf/message.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "simulation/simulated_cluster.h"

namespace poseidon {

class Traitor {
 public:
  // Any number from 0 to `below` - 1. What a traitor does depends on these alone.
  using Draw = std::function<uint64_t(uint64_t below)>;

  // Has the options' network tell it what is sent; outlives the cluster.
  Traitor(Draw draw, SimulatedClusterOptions& options);

  // Sends `count` envelopes within the first `span` of the job.
  void Disturb(SimulatedCluster& cluster, int count, Duration span);

  // Has a stranger send one envelope, under the name of whom it is from.
  static void Say(SimulatedCluster& cluster, const Envelope& envelope);

  // All that it has sent, in words.
  const std::string& said() const { return said_; }

 private:
  int Roll(int count) { return static_cast<int>(draw_(static_cast<uint64_t>(count))); }
  template <typename Value>
  Value Pick(std::initializer_list<Value> values) {
    return *(values.begin() + Roll(static_cast<int>(values.size())));
  }
  NodeId AnyNode() { return nodes_[Roll(static_cast<int>(nodes_.size()))]; }
  int64_t AnyNumber(int64_t from);
  double AnyReal();
  std::string AnyText();

  void Send(SimulatedCluster& cluster);
  void Change(Envelope& envelope);
  void ChangeBody(Envelope& envelope);
  // Of the message or of one of those in it.
  void ChangeField(google::protobuf::Message& message);
  void ChangeRepeated(google::protobuf::Message& message,
                      const google::protobuf::FieldDescriptor& field);

  Draw draw_;
  std::vector<MessageKind> kinds_;  // that may come from another node
  std::vector<NodeId> nodes_;
  std::deque<Envelope> seen_;
  std::string said_;
};

}  // namespace poseidon
