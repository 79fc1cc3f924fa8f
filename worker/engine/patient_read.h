// Reading again what a disk or a file server could not give for a moment.
#pragma once

#include <functional>

#include "core/time.h"

namespace poseidon {

// A soft mount of NFS gives up after some seconds, and a server that is started again takes half a
// minute. The other workers wait meanwhile, for communication.stall_deadline_seconds.
inline constexpr Duration kReadPatience = Seconds(30);

// Calls `read`, and again, ever less soon, while it throws an Error of kFailure, which may pass
// (core/files/regular_file.h), until kReadPatience has passed since it first did so. `wait` waits
// so long; it returns false if nobody wants the data any more. Throws what `read` has thrown last.
// Stateless.
//
//   ReadPatiently([&] { source.Read(record); }, [](Duration pause) { return Sleep(pause); });
void ReadPatiently(const std::function<void()>& read, const std::function<bool(Duration)>& wait);

}  // namespace poseidon
