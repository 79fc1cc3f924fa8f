#include "core/text/split.h"

#include <sstream>

namespace poseidon {

std::vector<std::string> SplitAtCommas(const std::string& text) {
  constexpr const char* kBlanks = " \t";
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    part.erase(part.find_last_not_of(kBlanks) + 1);
    part.erase(0, part.find_first_not_of(kBlanks));
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

}  // namespace poseidon
