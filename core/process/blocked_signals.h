// BlockedSignals: what ends a program by a signal's handler does not run on some of its threads.
#pragma once

#include <signal.h>

namespace poseidon {

// Those that end programs.
inline constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP};

// As long as it lives the calling thread gets none of kEndingSignals, and the threads
// that it starts meanwhile never do. The system then calls the handler on another thread, such as
// the main thread, which has a stack for it (core/program.h).
//
//   {
//     const BlockedSignals blocked;
//     StartPool();
//   }
class BlockedSignals {
 public:
  BlockedSignals();
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace poseidon
