// A library to preload into daemons under test (kill_points_test.py, scheduler_recovery_test.py):
// stops its process, as SIGSTOP does, where no test from outside could be quick enough to kill it.
//
//   LD_PRELOAD=libstop_at.so STOP_AT=DIRECTORY poseidon run ...
//
// While DIRECTORY has a file "fsync", a process that has written a *.journal to the disk stops as
// soon as it has; while there is one "rename", one that is about to give a *.solverstate its name.
// While there is one "hang", whoever has a *.journal written to the disk waits for ever, alone, as
// where the journal's file server does not answer; while there is one "hang_write", whoever writes
// to the journal at all; while there is one "hang_output", whoever writes to standard output. Who
// waits has made a file "POINT.hangs".
#include <dlfcn.h>
#include <fcntl.h>
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

// Empty without a directory.
std::string FileOf(const std::string& point) {
  const char* const directory = std::getenv("STOP_AT");
  return directory == nullptr ? "" : std::string(directory) + "/" + point;
}

bool IsWanted(const char* point) { return access(FileOf(point).c_str(), F_OK) == 0; }

void StopIfWanted(const char* point) {
  if (IsWanted(point)) raise(SIGSTOP);
}

void HangIfWanted(const char* point) {
  if (!IsWanted(point)) return;
  const std::string told = FileOf(std::string(point) + ".hangs");
  close(open(told.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  while (IsWanted(point)) usleep(100000);
}

std::string PathOf(int descriptor) {
  std::array<char, 4096> path{};
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = readlink(link.c_str(), path.data(), path.size());
  return {path.data(), length < 0 ? 0 : static_cast<size_t>(length)};
}

bool IsJournal(int descriptor) { return PathOf(descriptor).ends_with(".journal"); }

}  // namespace

extern "C" {

int fsync(int descriptor) {
  static auto* const next = Next<int(int)>("fsync");
  const bool is_journal = IsJournal(descriptor);
  if (is_journal) HangIfWanted("hang");
  const int result = next(descriptor);
  if (is_journal) StopIfWanted("fsync");
  return result;
}

ssize_t pwrite(int descriptor, const void* bytes, size_t size, off_t at) {
  static auto* const next = Next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  if (IsJournal(descriptor)) HangIfWanted("hang_write");
  return next(descriptor, bytes, size, at);
}

ssize_t write(int descriptor, const void* bytes, size_t size) {
  static auto* const next = Next<ssize_t(int, const void*, size_t)>("write");
  if (descriptor == STDOUT_FILENO) HangIfWanted("hang_output");
  return next(descriptor, bytes, size);
}

// As files that are written get their names (core/process/unfinished_file.h).
int renameat2(int from_directory, const char* from, int to_directory, const char* to,
              unsigned flags) noexcept {
  static auto* const next = Next<int(int, const char*, int, const char*, unsigned)>("renameat2");
  if (std::string_view(to).ends_with(".solverstate")) StopIfWanted("rename");
  return next(from_directory, from, to_directory, to, flags);
}

}  // extern "C"
