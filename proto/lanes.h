// How many data lanes the nodes of a job have where its config does not say.
//
//   OfferedLanes(job, 16)   // 4: the worker and the server of a machine get half of its cores
//
// Nodes offer lanes before anybody knows the model. The plan then uses as many of them as pay, and
// the others sleep. Functions without state.
#pragma once

#include "proto/job.pb.h"

namespace poseidon {

// Whether the number is the planner's: the config names none, and the network is described there or
// will be measured. Without either nobody knows what a lane gains, and there is one.
bool PlansLanes(const Job& job);

// The most that a plan may use on machines of so many cores, 1 to 8: the lanes of a worker and of
// the server beside it together have at most half of the cores, the rest computes.
int MostPlannedLanes(int cores);

// Data lanes that a node of the job opens: those that the config names, else as many as may be
// planned. `cores` are the machine's; cluster.cores counts instead where it is set.
int OfferedLanes(const Job& job, int cores);

}  // namespace poseidon
