// Placement: which server and which lane carries what of a plan.
//
// Pieces go to the bins by size, largest first onto the least loaded (Graham's longest processing
// time rule); equal loads go to the lowest index, so the same book gives the same plan everywhere.
//
// Where there are spare servers (Property::kSpareServers), whose machines have nothing else to
// send, they get more: BytePS's split (Jiang et al., OSDI 2020, section 4.2). With n workers, k
// spare servers, and x of all M bytes at each of the other servers, a worker's machine sends M - x
// as a worker and (n - 1) x as a server, and so it receives; a spare one with y bytes n y. Both are
// equal, and the exchange is the shortest, with
//
//   x = M (n - k) / (n^2 + k n - 2 k),   y = 2 M (n - 1) / (n^2 + k n - 2 k),
//
// in a time of n y / B at the bandwidth B; from k = n on x = 0. A load is then the server's bytes
// over its share.
//
// That takes y / x times as much of a link for what goes to a spare server, but connections get
// equal shares of it, and there is one a lane. So the other servers use only as many lanes that the
// spare ones have at least y / x times as many, w times. Where there are not enough lanes, they use
// one, and what is split so that all connections carry the same,
//
//   x = M / (n + k w),   y = w x,   in M (2 (n - 1) + k w) / ((n + k w) B),
//
// is faster than BytePS's split, whose first gradients go at the pace of equal shares, so that
// spare servers' links stay idle at first and are what all wait for in the end; or everything is
// on spare servers, in n M / (k B), if that is faster.
//
// Servers beside workers whose links are known to be slower or faster (Cluster.deviation) get what
// makes all links busy for the same time T: by the sums above
//
//   x_i = (T B_i - M) / (n - 2),   or nothing, where that is below 0,
//
// of more than two workers; of two each link carries M however it is split.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/cost/information_book.h"
#include "proto/model.pb.h"

namespace poseidon {

// Into how many pieces of at most `piece` floats.
inline int64_t PiecesOf(int64_t floats, int64_t piece) { return (floats + piece - 1) / piece; }

// Cuts a bucket of `floats` into chunks of at most `piece` floats, as equal as can be: a short last
// piece would cost a message all the same.
void CutIntoChunks(int64_t floats, int64_t piece, BucketPlan& bucket);

// Gives every chunk of every bucket its server, if the bucket's scheme uses servers, and its lane.
// Under ADAM all chunks of a bucket go to one server and one lane. Under the schemes without
// servers a chunk's lane is the same on all workers.
void Place(const InformationBook& book, Plan& plan);

// Floats owned by each server.
std::vector<int64_t> ServerLoads(const Plan& plan);

// The fullest server's load over the mean; 1 is even. 1 if no bucket uses servers.
double LoadImbalance(const Plan& plan);

}  // namespace poseidon
