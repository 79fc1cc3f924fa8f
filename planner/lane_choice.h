// How many data lanes a job's nodes have where its config does not say.
//
// A lane is a thread: it carries about one TCP flow, and handles messages, sums and updates at the
// rate of one core. So a fast network wants several, and what hides behind computing anyway wants
// no more than one, for each costs sockets, and a core that others could use.
//
//   Plan plan = PlanWithLanes(4, 1, [&](int lanes, std::stop_token) { ... });
//   // plan.lanes(): 2; plan.other_lanes(): what 1 and 4 would take
#pragma once

#include <functional>
#include <stop_token>
#include <string>

#include "proto/model.pb.h"

namespace poseidon {

// A plan for so many lanes, with predictions. Any plan will do once a stop has been requested.
using PlanForLanes = std::function<Plan(int lanes, std::stop_token stop)>;

// The plan with the fewest lanes, up to `most`, whose iteration is expected to take within a
// hundredth of the least that any number makes, or of computing alone. Sets planned_lanes and
// other_lanes. `plan_for` is asked for 1, 2, 4, ... and `most`, until an exchange is hidden; for
// `at_once` of them at a time, 1 or more, by as many threads. What is chosen does not depend on
// that. What it throws for a number that is wanted comes out here.
//
// The plan has the numbers whose plans were compared: its own, and those in other_lanes. Once
// `stop` is requested it is any, and `plan_for` is asked to stop.
Plan PlanWithLanes(int most, int at_once, const PlanForLanes& plan_for,
                   const std::stop_token& stop = {});

// "2 data lanes, planned: 1 would take 117.52 ms, 4 92.61 ms"; "1 data lane, as the exchange is
// hidden behind computing"; "2 data lanes, as given". Where the plan's own number is among its
// other_lanes, as of a network with tiers: "2 data lanes, planned for the machines' own links: by
// these alone 1 would take 120.00 ms, 2 100.00 ms".
std::string LanesText(const Plan& plan);

}  // namespace poseidon
