#include "transport/dropped_frames.h"

#include <glog/logging.h>

namespace poseidon {

void DroppedFrames::AddInvalid(const Envelope& envelope, std::string_view why) {
  ++count_;
  if (!logged_.IsNew(envelope.from.node)) return;
  LOG(WARNING) << "dropped a frame " << why << ": " << KindName(envelope.kind) << " from "
               << envelope.from.ToString() << ", bucket " << envelope.bucket << ", chunk "
               << envelope.chunk << ", iteration " << envelope.iteration << ", "
               << envelope.body.size() << " bytes (later ones of this peer are only counted)";
}

}  // namespace poseidon
