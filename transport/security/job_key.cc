#include "transport/security/job_key.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "core/atomic_file.h"
#include "core/error.h"

namespace poseidon {
namespace {

constexpr size_t kKeyLength = 40;  // 32 bytes in Z85
constexpr const char* kFileBegin = "poseidon job key 1: ";

using KeyText = std::array<char, kKeyLength + 1>;

// A file descriptor that closes itself.
class OpenFile {
 public:
  explicit OpenFile(int descriptor) : descriptor_(descriptor) {}
  ~OpenFile() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

[[noreturn]] void FailToRead(const std::string& path, const std::string& why) {
  throw ConfigError("security.key_file: " + path + ": " + why);
}

void CheckOwnerOnly(const OpenFile& file, const std::string& path) {
  struct stat status {};
  if (fstat(file.get(), &status) != 0) FailToRead(path, std::strerror(errno));
  if (!S_ISREG(status.st_mode)) FailToRead(path, "is no regular file");
  if (status.st_uid != geteuid() && status.st_uid != 0) {
    FailToRead(path, "belongs to another user, who could change it; make your own copy of it");
  }
  if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    FailToRead(path,
               "others than its owner may use this file, so the key may be known; if you are sure "
               "that it is not, run `chmod 600 " +
                   path + "`, else make another with `poseidon keys`");
  }
}

std::string ReadSome(const OpenFile& file, const std::string& path) {
  std::array<char, 256> bytes;  // more than a file of a key has
  const ssize_t count = read(file.get(), bytes.data(), bytes.size());
  if (count < 0) FailToRead(path, std::strerror(errno));
  return {bytes.data(), static_cast<size_t>(count)};
}

// In the text of a key's file.
std::optional<JobKey> Find(const std::string& text) {
  const std::string begin = kFileBegin;
  if (text.size() != begin.size() + kKeyLength + 1 || !text.starts_with(begin) ||
      text.back() != '\n') {
    return std::nullopt;
  }
  JobKey key;
  key.secret_key = text.substr(begin.size(), kKeyLength);
  KeyText public_key{};
  if (zmq_curve_public(public_key.data(), key.secret_key.c_str()) != 0) return std::nullopt;
  key.public_key = public_key.data();
  return key;
}

}  // namespace

JobKey JobKey::Make() {
  KeyText public_key{};
  KeyText secret_key{};
  if (zmq_curve_keypair(public_key.data(), secret_key.data()) != 0) {
    throw Error(ExitCode::kFailure,
                "the ZeroMQ of this machine can't make keys; install one that was built with CURVE "
                "(Debian's libzmq5 is)");
  }
  return {public_key.data(), secret_key.data()};
}

JobKey JobKey::Read(const std::string& path) {
  const OpenFile file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) FailToRead(path, std::strerror(errno));
  CheckOwnerOnly(file, path);
  const std::optional<JobKey> key = Find(ReadSome(file, path));
  if (!key) FailToRead(path, "is no key of a job; make one with `poseidon keys --out=DIR`");
  return *key;
}

JobKey JobKey::Parse(const std::string& text) {
  const std::optional<JobKey> key = Find(text);
  if (!key) throw ConfigError("security.key is no text of a job's key file");
  return *key;
}

std::string JobKey::ToText() const { return kFileBegin + secret_key + "\n"; }

void JobKey::Write(const std::string& path) const {
  if (WriteNewPrivateFile(path, ToText())) return;
  throw Error(ExitCode::kFailure, path +
                                      " is there already, and a job may still use its key; "
                                      "remove it, or choose another directory");
}

}  // namespace poseidon
