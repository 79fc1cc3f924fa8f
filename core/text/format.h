// Format: printf as a string of any length.
//
//   Format("%.1f ms of worker %d", 2.5, 3)  // "2.5 ms of worker 3"
//
// Pure functions; thread-safe.
#pragma once

#include <cstdio>
#include <string>

namespace poseidon {

template <typename... Values>
std::string Format(const char* format, Values... values) {
  std::string text(static_cast<size_t>(std::snprintf(nullptr, 0, format, values...)), '\0');
  std::snprintf(text.data(), text.size() + 1, format, values...);
  return text;
}

}  // namespace poseidon
