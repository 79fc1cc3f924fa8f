// A job's status for people at a terminal.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace poseidon {

// `status` is what a monitor's /api/job serves (docs/monitoring.md). Ends with a line end. Throws
// Error for what is none.
std::string StatusText(const nlohmann::ordered_json& status);

}  // namespace poseidon
