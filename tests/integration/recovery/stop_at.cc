// A library to preload into daemons under test (kill_points_test.py, scheduler_recovery_test.py):
// stops its process, as SIGSTOP does, where no test from outside could be quick enough to kill it.
//
//   LD_PRELOAD=libstop_at.so STOP_AT=DIRECTORY poseidon run ...
//
// While DIRECTORY has a file "fsync", a process that has written a *.journal to the disk stops as
// soon as it has; while there is one "rename", one that is about to give a *.solverstate its name.
// While there is one "hang", whoever has a *.journal written to the disk waits for ever, alone, as
// where the journal's file server does not answer.
#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>

namespace {

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

bool IsWanted(const char* point) {
  const char* const directory = std::getenv("STOP_AT");
  return directory != nullptr && access((std::string(directory) + "/" + point).c_str(), F_OK) == 0;
}

void StopIfWanted(const char* point) {
  if (IsWanted(point)) raise(SIGSTOP);
}

std::string PathOf(int descriptor) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = readlink(link.c_str(), path.data(), path.size());
  return {path.data(), length < 0 ? 0 : static_cast<size_t>(length)};
}

}  // namespace

extern "C" {

int fsync(int descriptor) {
  static auto* const next = Next<int(int)>("fsync");
  const bool is_journal = PathOf(descriptor).ends_with(".journal");
  while (is_journal && IsWanted("hang")) usleep(100000);
  const int result = next(descriptor);
  if (is_journal) StopIfWanted("fsync");
  return result;
}

int rename(const char* from, const char* to) noexcept {
  static auto* const next = Next<int(const char*, const char*)>("rename");
  if (std::string_view(to).ends_with(".solverstate")) StopIfWanted("rename");
  return next(from, to);
}

}  // extern "C"
