// What a frame of a worker leads to, where a server gathers gradients. Value types.
#pragma once

#include <vector>

namespace poseidon {

enum class Verdict {
  kTaken,
  kOld,      // of an iteration that this worker has been through, or seen before: ignored
  kForeign,  // of an iteration that can't be yet, or not what its sender should send: ignored
};

struct Reaction {
  Verdict verdict = Verdict::kForeign;
  // Workers that are to be answered now, ascending.
  std::vector<int> answer;
};

}  // namespace poseidon
