// What the nodes of a job did last. Pure functions of its files.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/time.h"
#include "diagnosis/job_files.h"

namespace poseidon {

// When the job ended, on the first node's clock: when the first of the nodes that have kept their
// events was told.
Time EndOf(const JobFiles& job);

// The index of a node's file in job.events.
std::optional<size_t> FindFile(const JobFiles& job, const NodeId& node);

// "fc1", or "layer 3" where nobody knows its name.
std::string LayerName(const JobFiles& job, size_t node, uint32_t layer);

// A frame in words: "the gradient of fc1, iteration 17, from worker 1 to server 0".
std::string FrameText(const JobFiles& job, const NodeEvent& frame, const NodeId& from,
                      const NodeId& to);

// What a node's program began last, and how long before its file was written.
struct LastActivity {
  NodeEvent event;
  Duration lasted{};
};
std::optional<LastActivity> FindLastActivity(const EventFile& file);

// The longest time in which a node saw nothing at all, on no lane, and then something again. A
// process that runs hears of a heartbeat every few seconds.
Duration LongestPause(const EventFile& file);

// The last frame of a node that another one has got, in a sentence; "" if none is kept.
std::string LastMessageFrom(const JobFiles& job, const NodeId& node);

// A sentence on what a node did, whom it had not heard from for the longest time.
std::string WaitOf(const JobFiles& job, size_t node);

// "2.9 s", "40 ms".
std::string DurationText(Duration duration);

}  // namespace poseidon
