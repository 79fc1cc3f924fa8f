#include "core/files/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace poseidon {
namespace {

std::string ReadOwner(int descriptor) {
  std::array<char, 512> text{};
  const ssize_t size = pread(descriptor, text.data(), text.size(), 0);
  // Between taking the lock and writing there is nothing to read.
  return size > 0 ? std::string(text.data(), static_cast<size_t>(size)) : "another program";
}

}  // namespace

DirectoryLock::DirectoryLock(const std::string& directory, const std::string& owner) {
  const std::string path = directory + "/lock";
  descriptor_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) {
    throw Error(ExitCode::kFailure, "can't write to " + path + ": " + std::strerror(errno));
  }
  if (flock(descriptor_, LOCK_EX | LOCK_NB) != 0) {
    const int error = errno;
    const std::string holder = ReadOwner(descriptor_);
    close(descriptor_);
    if (error != EWOULDBLOCK) {
      throw Error(ExitCode::kFailure, "can't lock " + path + ": " + std::strerror(error));
    }
    throw ConfigError(directory + " is in use by " + holder +
                      "; wait for its end, or choose another directory");
  }
  const std::string text = owner + ", process " + std::to_string(getpid());
  if (ftruncate(descriptor_, 0) != 0 ||
      pwrite(descriptor_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    const std::string reason = std::strerror(errno);
    close(descriptor_);
    throw Error(ExitCode::kFailure, "can't write to " + path + ": " + reason);
  }
}

// The file stays: whoever removed it could remove one that the next owner has just locked.
DirectoryLock::~DirectoryLock() { close(descriptor_); }

}  // namespace poseidon
