// A job's status for programs: what /api/job serves. docs/monitoring.md says what its keys are.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "scheduler/monitor/job_status.h"

namespace poseidon {

nlohmann::ordered_json StatusJson(const JobStatus& status);

// The list that curves are drawn from: points in lists of equal lengths.
nlohmann::ordered_json HistoryJson(const History& history);

// On one line. Names that are no UTF-8 have marks in place of what is not; what is not known is
// null.
std::string JsonText(const nlohmann::ordered_json& json);

}  // namespace poseidon
