// FramePairs: which frame that a node has sent is the one that another has got.
//
//   for (const FramePair& pair : PairFrames(files)) {
//     files[pair.sender].node, pair.sent->time, files[pair.receiver].node, pair.arrived->time
//   }
#pragma once

#include <cstddef>
#include <vector>

#include "transport/events/event_file.h"

namespace poseidon {

// Points into the files. The times are each of its own node's clock.
struct FramePair {
  size_t sender = 0;  // index of the file
  size_t receiver = 0;
  int lane = 0;           // of the sender
  int receiver_lane = 0;  // of the receiver
  const NodeEvent* sent = nullptr;
  const NodeEvent* arrived = nullptr;
};

// Those of which both ends are kept, in the order of the files, their lanes and their arrivals.
// `files` has each node at most once, and outlives the pairs.
std::vector<FramePair> PairFrames(const std::vector<EventFile>& files);

}  // namespace poseidon
