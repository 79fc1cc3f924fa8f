// Calls to the system that fail, as on a disk that is broken or a file system that lacks something.
#pragma once

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <stdexcept>

namespace poseidon {

// A call by its number, and how it fails where that argument, from 0, is not below `least`.
struct FailingCall {
  uint32_t number = 0;
  uint32_t error = 0;
  size_t argument = 0;
  uint32_t least = 0;
};

// From now on the call fails in this thread, for good: it is to be a death test's, or one of its
// own.
//
//   BreakCall({.number = SYS_read, .error = EIO});
inline void BreakCall(const FailingCall& call) {
  const auto argument =
      static_cast<uint32_t>(offsetof(seccomp_data, args) + call.argument * sizeof(uint64_t));
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call.number, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument),  // its low half on the machines that there are
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, call.least, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | call.error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  sock_fprog program = {.len = std::size(filter), .filter = filter};
  const bool broken = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
                      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
  if (!broken) throw std::runtime_error("can't make a call fail");
}

}  // namespace poseidon
