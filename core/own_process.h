// OwnProcess: the process that made an object with threads and sockets. A child that it forks has a
// copy of the object, but nothing of what is behind it: whoever waited for that would never end.
//
//     const OwnProcess process_;  // a member
//     process_.Check("this session");
//
// Thread safety: any thread.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <string>

#include "core/error.h"

namespace poseidon {

class OwnProcess {
 public:
  bool IsThis() const { return getpid() == id_; }

  // Throws Error in a forked child; `object` is what the message calls it.
  void Check(const char* object) const {
    if (IsThis()) return;
    throw Error(ExitCode::kFailure, std::string(object) + " was made by process " +
                                        std::to_string(id_) +
                                        ", of which this one is a fork; only that process can use "
                                        "it");
  }

 private:
  const pid_t id_ = getpid();
};

}  // namespace poseidon
