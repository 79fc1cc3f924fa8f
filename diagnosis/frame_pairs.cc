#include "diagnosis/frame_pairs.h"

#include <map>
#include <tuple>

namespace poseidon {
namespace {

// From a lane of a node to a lane of a node, and the number.
using Way = std::tuple<NodeId, int, NodeId, int, uint64_t>;

struct Sent {
  size_t file;
  int lane;
  const NodeEvent* event;
};

bool IsSame(const NodeEvent& sent, const NodeEvent& arrived) {
  // A process in the place of a dead one counts from 1 again.
  return sent.kind == arrived.kind && sent.iteration == arrived.iteration &&
         sent.bucket == arrived.bucket && sent.chunk == arrived.chunk && sent.step == arrived.step;
}

std::map<Way, Sent> AllSent(const std::vector<EventFile>& files) {
  std::map<Way, Sent> all;
  for (size_t file = 0; file < files.size(); ++file) {
    for (const EventFile::Lane& lane : files[file].lanes) {
      for (const NodeEvent& event : lane.events) {
        if (event.type != NodeEvent::Type::kSent || event.number == 0) continue;
        const Address to = event.peer();
        all[{files[file].node, lane.lane, to.node, to.lane, event.number}] = {file, lane.lane,
                                                                              &event};
      }
    }
  }
  return all;
}

}  // namespace

std::vector<FramePair> PairFrames(const std::vector<EventFile>& files) {
  const std::map<Way, Sent> all = AllSent(files);
  std::vector<FramePair> pairs;
  for (size_t file = 0; file < files.size(); ++file) {
    for (const EventFile::Lane& lane : files[file].lanes) {
      for (const NodeEvent& event : lane.events) {
        if (event.type != NodeEvent::Type::kArrived) continue;
        const Address from = event.peer();
        // What a node's program sends goes by the lane of the index that it goes to.
        const int sender_lane = from.lane == kApplicationLane ? lane.lane : from.lane;
        const auto sent =
            all.find({from.node, sender_lane, files[file].node, lane.lane, event.number});
        if (sent == all.end() || !IsSame(*sent->second.event, event)) continue;
        pairs.push_back(
            {sent->second.file, file, sent->second.lane, lane.lane, sent->second.event, &event});
      }
    }
  }
  return pairs;
}

}  // namespace poseidon
