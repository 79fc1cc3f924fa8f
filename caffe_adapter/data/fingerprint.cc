#include "caffe_adapter/data/fingerprint.h"

#include <xxhash.h>

#include <algorithm>

namespace poseidon {

uint64_t ExtendFingerprint(uint64_t hash, std::string_view bytes) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), hash);
}

std::vector<int64_t> RecordsToLookAt(int64_t records) {
  constexpr int64_t kMost = 16;
  const int64_t count = std::min(records, kMost);
  std::vector<int64_t> looked_at;
  for (int64_t i = 0; i < count; ++i) {
    looked_at.push_back(count == 1 ? 0 : i * (records - 1) / (count - 1));
  }
  return looked_at;
}

}  // namespace poseidon
