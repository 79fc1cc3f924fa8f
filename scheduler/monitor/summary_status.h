// A finished job as a monitor shows it, from its summary.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace poseidon {

// What /api/job had served at the job's end, as far as summary.json tells: no hosts, messages or
// timeline. `name` is what messages call the file. Throws DataError for a text that is no summary.
nlohmann::ordered_json StatusOfSummary(const std::string& summary, const std::string& name);

}  // namespace poseidon
