// A job's status for Prometheus: what /metrics serves, in its text format 0.0.4. docs/monitoring.md
// lists the metrics.
#pragma once

#include <string>

#include "scheduler/monitor/job_status.h"

namespace poseidon {

// What is not known is left out.
std::string MetricsText(const JobStatus& status);

}  // namespace poseidon
