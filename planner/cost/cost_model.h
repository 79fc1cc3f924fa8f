// The paper's cost model: floats that a node sends and receives for one layer in one iteration
// (arXiv 1706.03292, Table 1), and its Algorithm 1. Time is the predictor's subject
// (planner/predictor.h).
#pragma once

#include <cstdint>

#include "planner/cost/information_book.h"
#include "proto/job.pb.h"

namespace poseidon {

// Floats sent and received, together, by a node, with the servers' load spread evenly, for a layer
// of F floats: by one that is a worker and a server (colocated) 2 F (P1 + P2 - 2) / P2, else by the
// busier of a worker, 2 F, and a server, 2 F P1 / P2. Rounded to the nearest float where P2 does
// not divide it. Below 0 never; 0 if there is one worker and one server, on one node.
int64_t FloatsParameterServer(int64_t parameters, int64_t workers, int64_t servers, bool colocated);

// Floats sent and received by a worker: 2 K (P1 - 1)(M + N), or the most that an int64 holds.
int64_t FloatsFactorBroadcast(int64_t outputs, int64_t inputs, int64_t rows, int64_t workers);

// Algorithm 1: SFB if the layer is fully connected and 2K(P1-1)(M+N) <= 2MN(P1+P2-2)/P2, else PS.
// Where servers are not colocated with workers the right side is 2MN max(P1,P2)/P2, for the paper's
// nodes are both. Compared in integers of 128 bits, so exact; M N counts the weights, as in the
// paper, not the bias.
Scheme BestScheme(const InformationBook& book, int layer);

// What a job's policy makes of it: Algorithm 1, or one scheme for all. Layers whose gradient is no
// product of factors are under PS where the policy's scheme needs factors. `policy` is not TIME.
Scheme ChooseScheme(const InformationBook& book, int layer, Communication::Policy policy);

}  // namespace poseidon
