#include "core/files/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/paths/passing_error.h"

namespace poseidon {
namespace {

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

// An open file that is a regular one.
class RegularFile {
 public:
  // The flag keeps the opening of a pipe that nobody writes, and of some devices, from waiting.
  RegularFile(const std::string& path, ExitCode code)
      : path_(path),
        code_(code),
        descriptor_(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)) {
    if (descriptor_ < 0) FailBySystem();
    try {
      CheckKind();
    } catch (...) {
      close(descriptor_);
      throw;
    }
  }
  ~RegularFile() { close(descriptor_); }
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;

  int64_t size() const { return size_; }
  uid_t owner() const { return owner_; }

  [[noreturn]] void Fail(const std::string& reason) const {
    ThrowAs(code_, "can't read " + path_ + ": " + reason);
  }

  std::string ReadAll() const {
    std::string content(static_cast<size_t>(size_), '\0');
    size_t done = 0;
    while (done < content.size()) {
      const ssize_t bytes = read(descriptor_, content.data() + done, content.size() - done);
      if (bytes < 0 && errno == EINTR) continue;
      if (bytes < 0) FailBySystem();
      if (bytes == 0) break;
      done += static_cast<size_t>(bytes);
    }
    content.resize(done);  // it may have become shorter meanwhile
    return content;
  }

 private:
  [[noreturn]] void FailBySystem() const { ThrowReadError(path_, errno, code_); }

  void CheckKind() {
    struct stat status {};
    if (fstat(descriptor_, &status) != 0) FailBySystem();
    if (S_ISDIR(status.st_mode)) Fail("it is a directory; name a file");
    if (!S_ISREG(status.st_mode)) {
      Fail(std::string("it is ") + KindOf(status.st_mode) +
           ", and only regular files are read; write what it gives to one");
    }
    size_ = status.st_size;
    owner_ = status.st_uid;
    // Whoever only has it checked opens it by a library, which may not tell why it can't be read.
    char first = 0;
    const ssize_t bytes = pread(descriptor_, &first, 1, 0);
    if (bytes < 0 && MayPass(errno)) FailBySystem();
    // The kernel's own files, /proc/kmsg for one, may have no end.
    if (size_ == 0 && bytes != 0) {
      Fail("it has content but no size, as files of the kernel's have; copy it to a file");
    }
  }

  const std::string& path_;
  ExitCode code_;
  int descriptor_;
  int64_t size_ = 0;
  uid_t owner_ = 0;
};

std::string ReadAtMost(const RegularFile& file, int64_t most) {
  if (file.size() > most) {
    file.Fail("it has " + std::to_string(file.size()) + " bytes; such a file has at most " +
              std::to_string(most));
  }
  return file.ReadAll();
}

}  // namespace

void ThrowReadError(const std::string& path, int error, ExitCode code) {
  const std::string message = "can't read " + path + ": " + std::strerror(error);
  if (!MayPass(error)) ThrowAs(code, message);
  throw Error(ExitCode::kFailure, message + "; this may pass, so try again");
}

int64_t CheckRegularFile(const std::string& path, ExitCode code) {
  return RegularFile(path, code).size();
}

std::string ReadRegularFile(const std::string& path, ExitCode code, int64_t most) {
  return ReadAtMost(RegularFile(path, code), most);
}

OwnedText ReadOwnedText(const std::string& path, ExitCode code) {
  const RegularFile file(path, code);
  return {ReadAtMost(file, kMostTextBytes), file.owner() == geteuid() || file.owner() == 0};
}

}  // namespace poseidon
