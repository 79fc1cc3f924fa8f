// StallReports: what nodes of a job say that they wait for, and which of them names the cause.
//
// In an all-reduce everybody soon waits for a neighbor. Who is named as missing and does not wait
// itself is the cause; to know, reports are collected for a while.
//
// With staleness the last exchange lasts for as long as somebody computes: what is said of it
// counts only when all workers that train say it, as a frame of theirs must be lost then.
//
// A value; not thread-safe.
#pragma once

#include <optional>
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
  // the first report. Nothing if no report counts. `training`: the workers that have not finished.
  std::optional<Cause> FindCause(const std::vector<NodeId>& training) const;

 private:
  using Report = std::pair<NodeId, wire::Stalled>;

  bool IsWaiting(const NodeId& node) const;
  std::vector<Report> Counting(const std::vector<NodeId>& training) const;

  std::vector<Report> reports_;
};

}  // namespace poseidon
