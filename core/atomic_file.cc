#include "core/atomic_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "core/error.h"
#include "core/paths/links.h"
#include "core/paths/passing_error.h"
#include "core/process/unfinished_file.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;

// Before the writing process's number.
constexpr std::string_view kMark = ".tmp";

// So that the rename, too, survives a power cut. File systems that can't are no error: the file
// itself is whole either way.
void SyncDirectoryOf(const std::string& path) {
  const std::string directory = fs::absolute(path).parent_path();
  const int descriptor = open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  fsync(descriptor);
  close(descriptor);
}

}  // namespace

// A descriptor that is closed, and a temporary file that is removed, however the scope is left.
class UnplacedFile {
 public:
  // A group that shares the directory can replace the file; it need not write into it, and nobody
  // may who is not its owner where it says whom to trust (monitor.url).
  // `exclusion`: O_TRUNC to take the place of one that was left behind, O_EXCL to refuse it.
  explicit UnplacedFile(const std::string& path, int exclusion = O_TRUNC, mode_t mode = 0644)
      : path_(path + std::string(kMark) + std::to_string(getpid())),
        unfinished_([this, exclusion, mode] {
          descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | exclusion | O_CLOEXEC, mode);
          return path_;
        }) {
    if (descriptor_ < 0) Fail("can't create");
  }
  ~UnplacedFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!renamed_) unlink(path_.c_str());
  }
  UnplacedFile(const UnplacedFile&) = delete;
  UnplacedFile& operator=(const UnplacedFile&) = delete;

  void Write(std::string_view content) {
    while (!content.empty()) {
      const ssize_t written = write(descriptor_, content.data(), content.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) Fail("can't write");
      content.remove_prefix(written);
    }
  }

  void Sync() {
    if (fsync(descriptor_) != 0) Fail("can't sync");
  }

  // Whatever the umask says.
  void SetMode(mode_t mode) {
    if (fchmod(descriptor_, mode) != 0) Fail("can't change the mode of");
  }

  // False if there is something of that name.
  bool LinkTo(const std::string& path) {
    if (link(path_.c_str(), path.c_str()) == 0) return true;
    if (errno != EEXIST) Fail("can't give its name to");
    return false;
  }

  void RenameTo(const std::string& path) {
    errno = unfinished_.FinishAs(path);
    if (errno != 0) Fail("can't rename");
    renamed_ = true;
  }

 private:
  [[noreturn]] void Fail(const char* what) {
    const int error = errno;
    const std::string message = std::string(what) + " " + path_ + ": " + std::strerror(error);
    if (IsDenied(error)) throw ConfigError(message);
    throw Error(ExitCode::kFailure, message);
  }

  std::string path_;
  int descriptor_ = -1;
  UnfinishedFile unfinished_;
  bool renamed_ = false;
};

namespace {

// What `path` leads to, which the rename replaces whatever it is: /dev/null, too, if root names it.
std::string FileToReplace(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status)) {
    throw ConfigError("can't write " + path + ": it is a directory; name a file");
  }
  if (fs::is_other(status)) {
    throw ConfigError("can't write " + path +
                      ": it is a device, a pipe or a socket; name a regular file");
  }
  return BehindLinks(path).value_or(path);
}

// The number of the process that was to finish the file; 0: it is no such file.
pid_t WriterOf(const std::string& name) {
  const size_t mark = name.rfind(kMark);
  if (mark == std::string::npos) return 0;
  const std::string number = name.substr(mark + kMark.size());
  constexpr size_t kMostDigits = 9;  // Linux has no more processes
  const bool plausible = !number.empty() && number.size() <= kMostDigits &&
                         number.find_first_not_of("0123456789") == std::string::npos;
  return plausible ? std::atoi(number.c_str()) : 0;
}

// This process writes nothing now; but in a container each that is started has its number.
bool IsAnothersHere(pid_t writer) {
  return writer != getpid() && (kill(writer, 0) == 0 || errno != ESRCH);
}

bool IsAbandoned(const fs::directory_entry& file, bool alone) {
  constexpr std::chrono::minutes kLongAgo(10);
  const pid_t writer = WriterOf(file.path().filename());
  if (writer <= 0 || alone) return writer > 0;
  if (IsAnothersHere(writer)) return false;
  std::error_code error;
  const fs::file_time_type written = file.last_write_time(error);
  return !error && written + kLongAgo < fs::file_time_type::clock::now();
}

}  // namespace

int RemoveAbandonedFiles(const std::string& prefix, bool alone) {
  const fs::path path = fs::absolute(prefix);
  const std::string begin = path.filename();
  int removed = 0;
  std::error_code error;
  for (fs::directory_iterator file(path.parent_path(), error), end; !error && file != end;
       file.increment(error)) {
    if (!file->path().filename().string().starts_with(begin) || !IsAbandoned(*file, alone))
      continue;
    std::error_code ignored;
    if (fs::remove(file->path(), ignored)) ++removed;
  }
  return removed;
}

void WriteFileAtomically(const std::string& path, std::string_view content) {
  PreparedFile(path, content).Place();
}

PreparedFile::PreparedFile(const std::string& path, std::string_view content)
    : target_(FileToReplace(path)), file_(std::make_unique<UnplacedFile>(target_)) {
  file_->Write(content);
  file_->Sync();
}

PreparedFile::PreparedFile(PreparedFile&&) noexcept = default;
PreparedFile::~PreparedFile() = default;

void PreparedFile::Place() {
  file_->RenameTo(target_);
  SyncDirectoryOf(target_);
}

void CheckCanWrite(const std::string& path) { const UnplacedFile file(FileToReplace(path)); }

bool WriteNewPrivateFile(const std::string& path, std::string_view content) {
  constexpr mode_t kOwnerOnly = 0600;
  // Another user's file would be readable to that user.
  UnplacedFile file(path, O_EXCL, kOwnerOnly);
  file.SetMode(kOwnerOnly);
  file.Write(content);
  file.Sync();
  if (!file.LinkTo(path)) return false;
  SyncDirectoryOf(path);
  return true;
}

void WriteFileQuickly(const std::string& path, std::string_view content) {
  UnplacedFile file(path);
  file.Write(content);
  file.RenameTo(path);
}

}  // namespace poseidon
