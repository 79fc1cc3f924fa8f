// StallReports: what nodes of a job say that they wait for, and which of them names the cause.
//
// In an all-reduce everybody soon waits for a neighbor. Who is named as missing and does not wait
// itself is the cause; to know, reports are collected for a while.
//
// A value; not thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "proto/wire.pb.h"
#include "transport/address.h"

namespace poseidon {

class StallReports {
 public:
  struct Cause {
    NodeId waiting;
    std::string waiting_for;  // "the values of layer fc6, iteration 17,"
    std::vector<NodeId> missing;
  };

  bool empty() const { return reports_.empty(); }
  void Add(const NodeId& node, wire::Stalled stalled);
  // The first report that names a node which does not wait, with such nodes only; if there is none,
  // the first report. Not empty.
  Cause FindCause() const;

 private:
  bool IsWaiting(const NodeId& node) const;

  std::vector<std::pair<NodeId, wire::Stalled>> reports_;
};

}  // namespace poseidon
