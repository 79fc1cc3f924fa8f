#include "core/files/journal_file.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/files/file_lock.h"
#include "core/files/regular_file.h"
#include "core/paths/passing_error.h"

namespace poseidon {
namespace {

constexpr std::string_view kTitle = "Poseidon journal 1, of ";
constexpr size_t kHeaderBytes = 256;
constexpr size_t kMostRecordBytes = size_t{1} << 30;

// Before each record.
struct Frame {
  uint32_t size = 0;
  uint32_t size_check = 0;
  uint64_t check = 0;
};
static_assert(sizeof(Frame) == 16);

uint32_t CheckOfSize(uint32_t size) {
  return static_cast<uint32_t>(XXH3_64bits(&size, sizeof size));
}

bool AllZero(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char byte) { return byte == 0; });
}

enum class Found { kRecord, kUnfinished, kDamaged, kUnreadable };

// Takes the records of a file one after the other, with no more of it in memory than a part and the
// longest record: a journal of a long job has gigabytes.
class RecordReader {
 public:
  // From a byte of the file on.
  RecordReader(int descriptor, int64_t at) : descriptor_(descriptor), at_(at) {}

  // Where the next record begins, if the last call has found one.
  int64_t at() const { return at_; }

  // What the file goes on with, and the record if there is a whole one, which lives until the next
  // call.
  std::pair<Found, std::string_view> Take() {
    Frame frame;
    if (!Fill(sizeof frame)) return {EndOfFile(), {}};
    std::memcpy(&frame, left().data(), sizeof frame);
    // After a power cut a file system may have given the file its new size before its content.
    if (frame.size_check != CheckOfSize(frame.size)) return {OnlyZerosAreLeft(), {}};
    const size_t bytes = sizeof frame + frame.size;
    if (!Fill(bytes)) return {EndOfFile(), {}};
    const std::string_view record = left().substr(sizeof frame, frame.size);
    if (XXH3_64bits(record.data(), record.size()) != frame.check) return {Found::kDamaged, {}};
    Skip(bytes);
    return {Found::kRecord, record};
  }

 private:
  std::string_view left() const { return std::string_view(buffer_).substr(begin_); }
  Found EndOfFile() const { return failed_ ? Found::kUnreadable : Found::kUnfinished; }
  void Skip(size_t bytes) {
    begin_ += bytes;
    at_ += static_cast<int64_t>(bytes);
  }

  // Whether there are so many bytes; they are in the buffer then.
  bool Fill(size_t bytes) {
    if (left().size() >= bytes) return true;
    buffer_.erase(0, std::exchange(begin_, 0));
    while (buffer_.size() < bytes) {
      const size_t size = buffer_.size();
      buffer_.resize(size + kPartBytes);
      const ssize_t more =
          pread(descriptor_, buffer_.data() + size, kPartBytes, at_ + static_cast<int64_t>(size));
      buffer_.resize(size + static_cast<size_t>(std::max<ssize_t>(more, 0)));
      if (more < 0 && errno == EINTR) continue;
      failed_ = more < 0;
      if (more <= 0) return false;
    }
    return true;
  }

  Found OnlyZerosAreLeft() {
    while (Fill(1)) {
      if (!AllZero(left())) return Found::kDamaged;
      Skip(left().size());
    }
    return EndOfFile();
  }

  static constexpr size_t kPartBytes = 65536;

  const int descriptor_;
  int64_t at_;  // in the file
  std::string buffer_;
  size_t begin_ = 0;     // in the buffer
  bool failed_ = false;  // to read, of which errno tells
};

// As much of the header as there is; nothing if it can't be read.
std::optional<std::string> ReadHeader(int descriptor) {
  std::string header(kHeaderBytes, '\0');
  const ssize_t size = pread(descriptor, header.data(), header.size(), 0);
  if (size < 0) return std::nullopt;
  header.resize(static_cast<size_t>(size));
  return header;
}

// The text of a file's header without what fills it up.
std::string TextOf(std::string_view header) {
  return std::string(header.substr(0, header.find('\0')));
}

}  // namespace

JournalFile::JournalFile(const std::string& path, const std::string& owner)
    : path_(path), descriptor_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (descriptor_ < 0 && IsDenied(errno)) {
    throw ConfigError("can't open " + path + ": " + std::strerror(errno) +
                      "; choose another place");
  }
  if (descriptor_ < 0) Fail("can't open");
  try {
    Lock();
    Read();
    WriteHeader(owner);
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

JournalFile::~JournalFile() { close(descriptor_); }

void JournalFile::Fail(const std::string& what) const {
  throw Error(ExitCode::kFailure, what + " " + path_ + ": " + std::strerror(errno));
}

void JournalFile::Lock() {
  if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
  if (errno == ENOLCK) {
    throw Error(ExitCode::kFailure,
                "can't lock " + path_ + ": " + std::strerror(ENOLCK) +
                    "; its file system has no locks, or its lock service does not answer: start "
                    "that, or choose another place");
  }
  if (HasNoLocks(errno)) {
    throw ConfigError("can't lock " + path_ + ": " + std::strerror(errno) +
                      "; its file system has no locks, and two programs could write there at once; "
                      "choose another place");
  }
  if (errno != EWOULDBLOCK) Fail("can't lock");
  const std::string text = TextOf(ReadHeader(descriptor_).value_or(""));
  // Between making the file and writing to it there is nothing to read.
  const bool says = text.starts_with(kTitle);
  throw ConfigError(path_ + " is in use by " +
                    (says ? text.substr(kTitle.size()) : "another program") +
                    "; wait for its end, or choose another directory");
}

void JournalFile::FailDamaged(int64_t at) const {
  throw DataError(path_ + " is damaged at byte " + std::to_string(at) +
                  ": what is there is not what was written; nothing can go on from it. Remove it "
                  "to begin anew");
}

void JournalFile::Read() {
  const int64_t bytes = CheckRegularFile(path_, ExitCode::kFailure);
  const std::optional<std::string> header = ReadHeader(descriptor_);
  if (!header) Fail("can't read");
  // Its first process may have died while it wrote the header.
  if (header->size() < kHeaderBytes &&
      (AllZero(*header) || header->starts_with(kTitle) || kTitle.starts_with(*header))) {
    cut_bytes_ = bytes;
    return;
  }
  if (!header->starts_with(kTitle)) {
    throw ConfigError(path_ + " is no journal of this program; remove it, or choose another place");
  }
  RecordReader reader(descriptor_, kHeaderBytes);
  Found found = Found::kRecord;
  while (found == Found::kRecord) {
    size_ = reader.at();
    found = reader.Take().first;
  }
  if (found == Found::kDamaged) FailDamaged(size_);
  if (found == Found::kUnreadable) Fail("can't read");
  cut_bytes_ = bytes - size_;
  past_bytes_ = size_;
}

void JournalFile::WriteHeader(const std::string& owner) {
  std::string header = std::string(kTitle) + owner + ", process " + std::to_string(getpid());
  header.resize(kHeaderBytes, '\0');
  WriteAll(header, 0);
  size_ = std::max<int64_t>(size_, kHeaderBytes);
  if (ftruncate(descriptor_, size_) != 0) Fail("can't write to");
}

void JournalFile::WriteAll(std::string_view bytes, int64_t at) const {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(descriptor_, bytes.data(), bytes.size(), at);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) Fail("can't write to");
    bytes.remove_prefix(static_cast<size_t>(written));
    at += written;
  }
}

void JournalFile::ReadPast(const std::function<void(std::string_view record)>& take) const {
  RecordReader reader(descriptor_, kHeaderBytes);
  while (reader.at() < past_bytes_) {
    const auto [found, record] = reader.Take();
    if (found == Found::kUnreadable) Fail("can't read");
    if (found != Found::kRecord) FailDamaged(reader.at());
    take(record);
  }
}

void JournalFile::Append(std::string_view record) {
  CHECK_LE(record.size(), kMostRecordBytes);
  Frame frame;
  frame.size = static_cast<uint32_t>(record.size());
  frame.size_check = CheckOfSize(frame.size);
  frame.check = XXH3_64bits(record.data(), record.size());
  std::string bytes(reinterpret_cast<const char*>(&frame), sizeof frame);
  bytes += record;
  try {
    WriteAll(bytes, size_);
  } catch (const Error&) {
    // Else the next record would follow half of this one. If it fails, opening the file does it.
    const bool cut = ftruncate(descriptor_, size_) == 0;
    LOG_IF(WARNING, !cut) << "can't cut off what was begun of a record in " << path_;
    throw;
  }
  size_ += static_cast<int64_t>(bytes.size());
}

void JournalFile::Sync() {
  if (fsync(descriptor_) != 0) Fail("can't write to");
}

std::vector<std::string> JournalFollower::TakeNew() {
  std::vector<std::string> records;
  const int descriptor = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return records;
  if (at_ == 0) {
    const std::string header = ReadHeader(descriptor).value_or("");
    if (header.size() == kHeaderBytes && header.starts_with(kTitle)) at_ = kHeaderBytes;
  }
  RecordReader reader(descriptor, at_);
  while (at_ > 0) {
    const auto [found, record] = reader.Take();
    if (found != Found::kRecord) break;
    records.emplace_back(record);
    at_ = reader.at();
  }
  close(descriptor);
  return records;
}

}  // namespace poseidon
