// What became of a received data frame. Every part of a node that takes frames answers with this.
#pragma once

namespace poseidon {

enum class FrameStatus {
  kAccepted,   // taken; more is needed
  kComplete,   // taken, and with it all that its receiver waited for is there
  kDuplicate,  // of a past iteration, or seen before: ignored
  kInvalid,    // nothing that a correct peer would send, or of an iteration that can't be yet:
               // ignored
};

}  // namespace poseidon
