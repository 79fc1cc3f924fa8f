// Flags that take one of a few words.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/error.h"

namespace poseidon {

// What a flag can be, and what that stands for.
template <typename Value>
using Choices = std::vector<std::pair<std::string, Value>>;

// What `name` stands for. Throws ConfigError that names the flag and all that it can be.
template <typename Value>
Value Choose(const std::string& flag, const std::string& name, const Choices<Value>& choices) {
  std::string names;
  for (const auto& [known, value] : choices) {
    if (known == name) return value;
    names += (names.empty() ? "" : ", ") + known;
  }
  throw ConfigError("--" + flag + " is \"" + name + "\"; it must be one of " + names);
}

}  // namespace poseidon
