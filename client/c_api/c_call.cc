#include "client/c_api/c_call.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <string>

namespace poseidon {
namespace {

// By thread, as errno is: two threads' calls may fail at the same time. No object, which would be
// destroyed: handlers of atexit and destructors of statics may ask for it, too, and run when what
// the thread has of objects is gone.
thread_local char last_error[4096];

// Warnings and errors; that nodes join is no news to the program's user.
constexpr int kFirstLogLevel = google::GLOG_WARNING;

}  // namespace

// A program that sets glog up itself keeps what it has chosen. Glog is not initialized here: nobody
// can do that twice, and the program may do it later. It writes to stderr until then.
void SetUpLog() {
  static std::once_flag once;
  std::call_once(once, [] {
    // A flag of 0 may be a choice, too: the environment's.
    const bool is_chosen = google::IsGoogleLoggingInitialized() ||
                           FLAGS_minloglevel != google::GLOG_INFO ||
                           std::getenv("GLOG_minloglevel") != nullptr;
    if (!is_chosen) FLAGS_minloglevel = kFirstLogLevel;
  });
}

std::string TextOf(const char* text) { return text == nullptr ? std::string() : text; }

std::function<bool()> InterruptedBy(poseidon_interrupted interrupted, void* context) {
  if (interrupted == nullptr) return {};
  return [interrupted, context] { return interrupted(context) != 0; };
}

int Failed(int code, const std::string& message) {
  size_t size = std::min(message.size(), sizeof last_error - 1);
  // A character of UTF-8 of which there would be only a part is left out.
  while (size > 0 && (static_cast<uint8_t>(message[size]) & 0xc0) == 0x80) --size;
  last_error[message.copy(last_error, size)] = '\0';
  return code;
}

}  // namespace poseidon

const char* poseidon_version(void) { return POSEIDON_VERSION; }

const char* poseidon_last_error(void) { return poseidon::last_error; }

void poseidon_set_log_level(int least_severity) {
  poseidon::SetUpLog();
  FLAGS_minloglevel = std::clamp(least_severity, 0, static_cast<int>(google::GLOG_ERROR));
}
