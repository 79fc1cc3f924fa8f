// Listed: a list as people read it in a sentence.
//
//   Listed(std::vector<std::string>{"conv1", "fc"})  // "conv1, fc"
//   Listed(std::set<int>{0, 1, 3})                   // "0, 1, 3"
//
// Pure; thread-safe.
#pragma once

#include <string>
#include <type_traits>

namespace poseidon {

// Of texts or whole numbers.
template <typename List>
std::string Listed(const List& list) {
  std::string text;
  for (const auto& part : list) {
    if (!text.empty()) text += ", ";
    if constexpr (std::is_integral_v<std::decay_t<decltype(part)>>) {
      text += std::to_string(part);
    } else {
      text += part;
    }
  }
  return text;
}

}  // namespace poseidon
