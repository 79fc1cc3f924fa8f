// What limits the iteration of a plan, and what would change most: predictions of the same plan on
// clusters that are better in one thing.
//
//   const Limits limits = WhatLimits(plan, InformationBook(model, cluster), ClusterOf(job));
//   // limits.by: "the network"; limits.improvements[0]: "twice the bandwidth", 0.181 s
#pragma once

#include <string>
#include <vector>

#include "planner/cost/cluster_model.h"
#include "planner/cost/information_book.h"
#include "proto/model.pb.h"

namespace poseidon {

struct Improvement {
  std::string what;    // "lanes 1 -> 4"
  double seconds = 0;  // what the iteration would take, under the same plan
};

struct Limits {
  double seconds = 0;  // of the iteration as it is predicted
  // `seconds` itself is an estimate, as the plan has too many messages for one prediction.
  bool seconds_estimated = false;
  // The plan has too many messages for some twenty predictions: `without` and the improvements say
  // what estimates make of the iteration's time, which know neither chance nor order.
  bool estimated = false;
  // What would shorten the iteration most if it took no time: "the network", "messages on lanes",
  // "updates", "sums of gradients", "rebuilding from factors", "copies to and from devices", "what
  // lanes do" or "computing"; the latter where nothing else gains a hundredth, unless several
  // things do together: "several things at once".
  std::string by;
  // Seconds of the iteration if that took no time, or with what of the improvements belongs to it,
  // where that is even less: messages that come at once can wait for each other.
  double without = 0;
  bool at_best = false;  // `without` is of such an improvement, not of what takes no time
  // What gains a hundredth or more, the most first.
  std::vector<Improvement> improvements;
  // What of the network would be better, and yet makes the iteration longer by a hundredth or more:
  // messages would meet that do not now, and wait for each other.
  std::vector<Improvement> setbacks;
};

// The plan is of the book's model and of a cluster such as this. Some twenty predictions, or of
// large plans one and estimates. Thread-safe.
Limits WhatLimits(const Plan& plan, const InformationBook& book, const ClusterModel& cluster);

// The same of one of the iteration's `steps` local steps.
Limits OfAStep(Limits limits, int steps);

}  // namespace poseidon
