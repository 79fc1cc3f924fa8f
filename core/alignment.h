// How memory that vector units read and write is aligned.
#pragma once

#include <cstddef>

namespace poseidon {

// Bytes: a cache line, and enough for any vector unit.
constexpr size_t kVectorAlignment = 64;

}  // namespace poseidon
