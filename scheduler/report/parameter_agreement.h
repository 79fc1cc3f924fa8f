// Whether the workers of a job ended with the same parameters, as they always must.
#pragma once

#include <string>

#include "proto/wire.pb.h"
#include "scheduler/report/job_traffic.h"

namespace poseidon {

// For people, if two hashes that were given differ: the workers that have them, of `view`, and what
// to do; "" if none do. A worker that gives none is not compared.
std::string DescribeParameterDifference(const WorkerReports& reports, const wire::View& view);

// For people, at a good end: that all are the same, or of which workers nobody knows. `reports` is
// not empty.
std::string DescribeParameters(const WorkerReports& reports);

}  // namespace poseidon
