// The nearest of the names that something can have: for errors about names that people type.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace poseidon {

// The name with the least edit distance to `text`, Levenshtein's, in which two neighbors that are
// exchanged are one error, too; the first of equals. None if more than half of the letters are
// wrong: that is no typing error any more.
std::optional<std::string> Nearest(const std::string& text, const std::vector<std::string>& names);

}  // namespace poseidon
