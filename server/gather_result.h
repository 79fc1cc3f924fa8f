// What a frame of a worker leads to, where a server gathers gradients. Value types.
#pragma once

#include <vector>

#include "transport/frame_status.h"

namespace poseidon {

struct GatherResult {
  FrameStatus status = FrameStatus::kInvalid;
  // Workers that are to be answered now, ascending.
  std::vector<int> answer;
};

}  // namespace poseidon
