#include "core/process/blocked_signals.h"

#include <glog/logging.h>

namespace poseidon {

BlockedSignals::BlockedSignals() {
  sigset_t all;
  sigfillset(&all);
  CHECK_EQ(pthread_sigmask(SIG_SETMASK, &all, &before_), 0);
}

BlockedSignals::BlockedSignals(std::span<const int> signals) {
  sigset_t some;
  sigemptyset(&some);
  for (const int signal : signals) sigaddset(&some, signal);
  CHECK_EQ(pthread_sigmask(SIG_BLOCK, &some, &before_), 0);
}

BlockedSignals::~BlockedSignals() { CHECK_EQ(pthread_sigmask(SIG_SETMASK, &before_, nullptr), 0); }

}  // namespace poseidon
