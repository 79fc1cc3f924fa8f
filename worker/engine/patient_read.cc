#include "worker/engine/patient_read.h"

#include <glog/logging.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "core/error.h"
#include "core/steady_now.h"

namespace poseidon {
namespace {

constexpr Duration kFirstReadPause = std::chrono::milliseconds(100);

}  // namespace

void ReadPatiently(const std::function<void()>& read, const std::function<bool(Duration)>& wait) {
  std::optional<Time> failed;  // first
  Duration waited{};
  for (Duration pause = kFirstReadPause;; pause *= 2) {
    try {
      return read();
    } catch (const Error& error) {
      if (error.exit_code() != ExitCode::kFailure) throw;
      // A file server may also take its time to fail.
      if (!failed) failed = SteadyNow();
      if (std::max(waited, SteadyNow() - *failed) >= kReadPatience) throw;
      pause = std::min(pause, kReadPatience - waited);
      LOG(WARNING) << error.what() << " (this is done in " << ToSeconds(pause) << " s)";
      if (!wait(pause)) throw;
    }
    waited += pause;
  }
}

}  // namespace poseidon
