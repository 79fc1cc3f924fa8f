#include "worker/engine/patient_read.h"

#include <glog/logging.h>

#include <chrono>

#include "core/error.h"

namespace poseidon {
namespace {

constexpr Duration kFirstReadPause = std::chrono::milliseconds(100);

}  // namespace

void ReadPatiently(const std::function<void()>& read, const std::function<bool(Duration)>& wait) {
  Duration waited{};
  for (Duration pause = kFirstReadPause;; pause *= 2) {
    try {
      return read();
    } catch (const Error& error) {
      if (error.exit_code() != ExitCode::kFailure || waited >= kReadPatience) throw;
      LOG(WARNING) << error.what() << " (this is done in " << ToSeconds(pause) << " s)";
      if (!wait(pause)) throw;
    }
    waited += pause;
  }
}

}  // namespace poseidon
