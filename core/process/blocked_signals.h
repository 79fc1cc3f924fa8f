// BlockedSignals: a thread gets no signals for a while, or those not that end programs.
#pragma once

#include <signal.h>

#include <span>

namespace poseidon {

// Those that end programs.
inline constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP};

// As long as it lives the calling thread gets none of them, and the threads that it starts
// meanwhile never do. The system then calls the handler on another thread, such as the main thread,
// which has a stack for it (core/program.h), or later, if all threads have them blocked.
//
//   {
//     const BlockedSignals blocked(kEndingSignals);
//     StartPool();
//   }
class BlockedSignals {
 public:
  BlockedSignals();  // all signals
  explicit BlockedSignals(std::span<const int> signals);
  ~BlockedSignals();
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;

 private:
  sigset_t before_;
};

}  // namespace poseidon
