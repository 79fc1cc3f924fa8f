// What `poseidon doctor` has found: a sentence, how bad it is, and what mends it.
#pragma once

#include <string>
#include <vector>

namespace poseidon {

enum class FindingLevel { kGood, kWarning, kError };

struct Finding {
  FindingLevel level = FindingLevel::kGood;
  std::string check;      // what was looked at, a word: "clocks"
  std::string text;       // what was found, and where: "the clock of node1 is 3.2 s ahead"
  std::string mend = {};  // a command or an advice; empty where nothing is wrong
};

using Findings = std::vector<Finding>;

// "good", "warning" or "error".
inline const char* NameOf(FindingLevel level) {
  switch (level) {
    case FindingLevel::kGood:
      return "good";
    case FindingLevel::kWarning:
      return "warning";
    default:
      return "error";
  }
}

}  // namespace poseidon
