#include "core/parameter_hash.h"

#include <xxhash.h>

#include <cstdio>

namespace poseidon {

ParameterHash::ParameterHash() : state_(XXH3_createState()) { XXH3_128bits_reset(state_.get()); }

void ParameterHash::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

void ParameterHash::Add(std::span<const float> values) {
  XXH3_128bits_update(state_.get(), values.data(), values.size_bytes());
}

std::string ParameterHash::ToString() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_.get());
  char text[33];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(hash.high64),
                static_cast<unsigned long long>(hash.low64));
  return text;
}

}  // namespace poseidon
