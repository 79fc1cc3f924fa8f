// One call of a Communicator: what its lanes carry out, and what all ranks must agree on.
//
// Value types and pure functions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "collectives/schedule.h"
#include "core/arithmetic/codec.h"
#include "poseidon/communicator.h"

namespace poseidon {

enum class Collective { kAllReduce, kAllGather, kBarrier };

// What a rank says of its call with every frame; ranks whose terms differ made different calls.
// Travels as the frame's epoch.
struct CallTerms {
  Collective collective = Collective::kAllReduce;
  Scheme scheme = RING;
  CodecType codec = CodecType::kFp32;
  int64_t floats = 0;   // below 2^40
  uint16_t digest = 0;  // of all the rest: grid, chunks, blocks

  uint64_t Pack() const;
  static CallTerms Unpack(uint64_t packed);
  // "all-reduce of 100 floats (ring, fp32)".
  std::string ToString() const;
};

struct CollectiveCall {
  int64_t number = 0;  // of the communicator's calls
  CallTerms terms;
  std::vector<Schedule> chunks;  // one a chunk
  std::span<float> floats;
  // Held by every frame that refers to `floats`.
  std::shared_ptr<const void> lease;
};

// The calls, without number, floats and lease. Throw ConfigError if the options can't work. All
// ranks must agree on whether they are on one machine, which the automatic choice depends on.
CollectiveCall AllReduceCall(int64_t floats, const CollectiveOptions& options, int rank,
                             int workers, bool one_machine);
// blocks[r] is where rank r's floats are.
CollectiveCall AllGatherCall(const std::vector<Range>& blocks, const CollectiveOptions& options,
                             int rank);

}  // namespace poseidon
