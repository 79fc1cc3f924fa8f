#include "core/process/background_thread.h"

#include <sys/resource.h>

namespace poseidon {

void RunInBackground() {
  constexpr int kNice = 10;
  // On Linux this is the calling thread's alone, and is handed on to those that it starts. What is
  // refused changes nothing.
  setpriority(PRIO_PROCESS, 0, kNice);
}

}  // namespace poseidon
