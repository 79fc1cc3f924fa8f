#include "core/process/blocked_signals.h"

#include <glog/logging.h>

namespace poseidon {

BlockedSignals::BlockedSignals() {
  sigset_t ending;
  sigemptyset(&ending);
  for (const int signal : kEndingSignals) sigaddset(&ending, signal);
  CHECK_EQ(pthread_sigmask(SIG_BLOCK, &ending, &before_), 0);
}

BlockedSignals::~BlockedSignals() { CHECK_EQ(pthread_sigmask(SIG_SETMASK, &before_, nullptr), 0); }

}  // namespace poseidon
