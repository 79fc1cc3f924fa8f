#include "client/c_api/c_call.h"

#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <string>
#include <utility>

namespace poseidon {
namespace {

// By thread, as errno is: two threads' calls may fail at the same time. A pointer, which nothing
// destroys: handlers of atexit and destructors of statics may ask for it, too, and run when what
// the thread has of objects is gone.
thread_local std::string* last_error = nullptr;

// Frees it with a thread that ends; the main one's is for those that run after it.
struct LastErrorsEnd {
  LastErrorsEnd() = default;
  ~LastErrorsEnd() {
    if (gettid() != getpid()) delete std::exchange(last_error, nullptr);
  }
  LastErrorsEnd(const LastErrorsEnd&) = delete;
  LastErrorsEnd& operator=(const LastErrorsEnd&) = delete;
};

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
  if (last_error == nullptr) {
    static thread_local LastErrorsEnd end;
    last_error = new std::string;
  }
  *last_error = message;
  return code;
}

}  // namespace poseidon

const char* poseidon_version(void) { return POSEIDON_VERSION; }

const char* poseidon_last_error(void) {
  return poseidon::last_error == nullptr ? "" : poseidon::last_error->c_str();
}

void poseidon_set_log_level(int least_severity) {
  poseidon::SetUpLog();
  FLAGS_minloglevel = std::clamp(least_severity, 0, static_cast<int>(google::GLOG_ERROR));
}
