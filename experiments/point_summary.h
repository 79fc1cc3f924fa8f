// From what a job's scheduler has written (summary.json, docs/running.md) to a point's result.
#pragma once

#include <string>

#include "experiments/experiment_point.h"

namespace poseidon {

// The middle half of the iterations after the first `warm_up`, by their times, counts: what
// a busy machine did to a few of them does not show, and what alternates still has its mean. Bytes
// are the mean of all iterations. Throws Error if the text is no summary of such a job.
PointResult ReadSummary(const std::string& text, const ExperimentPoint& point, int warm_up);

}  // namespace poseidon
