// The monitor's page: HTML without any outside resource, made of the files in page/ by CMake.
#pragma once

#include <string>

namespace poseidon {

// A page that follows the job of the server that it comes from.
std::string LivePage();
// A page that shows `status_json`, what /api/job serves, and asks nobody: for a file.
std::string StoredPage(const std::string& status_json);

// What a browser lets the page do: ask where it comes from, and nothing else.
inline constexpr const char* kPagePolicy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src "
    "'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace poseidon
