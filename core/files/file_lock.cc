#include "core/files/file_lock.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/paths/passing_error.h"

namespace poseidon {
namespace {

std::string ReadOwner(int descriptor) {
  std::array<char, 512> text{};
  const ssize_t size = pread(descriptor, text.data(), text.size(), 0);
  // Between taking the lock and writing there is nothing to read.
  return size > 0 ? std::string(text.data(), static_cast<size_t>(size)) : "another program";
}

// How an owner's text ends.
std::string OnThisMachine() {
  std::array<char, 256> name{};  // Linux's have at most 64 characters
  gethostname(name.data(), name.size() - 1);
  return std::string(" on ") + name.data();
}

bool IsAt(const std::string& path, int descriptor) {
  struct stat there {};
  struct stat open {};
  return stat(path.c_str(), &there) == 0 && fstat(descriptor, &open) == 0 &&
         there.st_dev == open.st_dev && there.st_ino == open.st_ino;
}

}  // namespace

bool HasNoLocks(int error) { return error == ENOSYS || error == EOPNOTSUPP || error == ENOLCK; }

FileLock::FileLock(std::string path, const std::string& owner) : path_(std::move(path)) {
  while (!Take()) {
    if (!holder_.empty()) return;
  }
  if (descriptor_ >= 0) WriteOwner(owner);
}

FileLock::~FileLock() {
  if (descriptor_ < 0) return;
  // Before others can have it: Take looks whether the file is still the one at its path.
  unlink(path_.c_str());
  close(descriptor_);
}

bool FileLock::is_held_here() const { return holder_.ends_with(OnThisMachine()); }

bool FileLock::Take() {
  const int descriptor = open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    const int error = errno;
    const std::string message = "can't write to " + path_ + ": " + std::strerror(error);
    if (IsDenied(error)) throw ConfigError(message + "; choose another place");
    throw Error(ExitCode::kFailure, message);
  }
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
    if (IsAt(path_, descriptor)) {
      descriptor_ = descriptor;
      return true;
    }
    close(descriptor);
    return false;
  }
  const int error = errno;
  if (error == EWOULDBLOCK) holder_ = ReadOwner(descriptor);
  close(descriptor);
  if (error == EWOULDBLOCK) return false;
  if (!HasNoLocks(error)) {
    throw Error(ExitCode::kFailure, "can't lock " + path_ + ": " + std::strerror(error));
  }
  unlink(path_.c_str());
  LOG(WARNING) << "can't lock " << path_ << ": " << std::strerror(error)
               << "; see to it that no other program writes there";
  return true;
}

void FileLock::WriteOwner(const std::string& owner) {
  const std::string text = owner + ", process " + std::to_string(getpid()) + OnThisMachine();
  if (ftruncate(descriptor_, 0) == 0 &&
      pwrite(descriptor_, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) {
    return;
  }
  const std::string reason = std::strerror(errno);
  close(descriptor_);
  throw Error(ExitCode::kFailure, "can't write to " + path_ + ": " + reason);
}

}  // namespace poseidon
