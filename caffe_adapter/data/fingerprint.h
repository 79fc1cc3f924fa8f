// Fingerprints of data: by which workers on several machines find out that they do not read the
// same.
//
//   uint64_t hash = 0;
//   for (const std::string& name : names) hash = ExtendFingerprint(hash, name);
//
// Data are too much to read all of them before training, so a fingerprint looks at what is cheap to
// have (keys, names, labels) and at a few records. It finds another data set, not one changed byte.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace poseidon {

// The fingerprint of what `hash` is of, with `bytes` behind it. Begin with 0.
uint64_t ExtendFingerprint(uint64_t hash, std::string_view bytes);

// The records to look at: the first, the last, and some in equal distances between, 16 at most;
// ascending. `records` is at least 1.
std::vector<int64_t> RecordsToLookAt(int64_t records);

}  // namespace poseidon
