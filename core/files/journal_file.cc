#include "core/files/journal_file.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/files/regular_file.h"

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

enum class Found { kRecord, kUnfinished, kDamaged };

// What the file goes on with, and the record if there is a whole one.
std::pair<Found, std::string_view> FirstRecord(std::string_view left) {
  Frame frame;
  if (left.size() < sizeof frame) return {Found::kUnfinished, {}};
  std::memcpy(&frame, left.data(), sizeof frame);
  const bool sized = frame.size_check == CheckOfSize(frame.size);
  // After a power cut a file system may have given the file its new size before its content.
  if (!sized) return {AllZero(left) ? Found::kUnfinished : Found::kDamaged, {}};
  const std::string_view record = left.substr(sizeof frame, frame.size);
  if (record.size() < frame.size) return {Found::kUnfinished, {}};
  const bool whole = XXH3_64bits(record.data(), record.size()) == frame.check;
  return {whole ? Found::kRecord : Found::kDamaged, record};
}

// The text of a file's header without what fills it up.
std::string TextOf(std::string_view header) {
  return std::string(header.substr(0, header.find('\0')));
}

}  // namespace

JournalFile::JournalFile(const std::string& path, const std::string& owner)
    : path_(path), descriptor_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (descriptor_ < 0) Fail("can't open");
  try {
    Lock();
    Read(ReadRegularFile(path_, ExitCode::kFailure, kMostFileBytes));
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
  if (errno != EWOULDBLOCK) Fail("can't lock");
  std::array<char, kHeaderBytes> header{};
  const ssize_t size = pread(descriptor_, header.data(), header.size(), 0);
  const std::string text = TextOf({header.data(), static_cast<size_t>(std::max<ssize_t>(size, 0))});
  // Between making the file and writing to it there is nothing to read.
  const bool says = text.starts_with(kTitle);
  throw ConfigError(path_ + " is in use by " +
                    (says ? text.substr(kTitle.size()) : "another program") +
                    "; wait for its end, or choose another directory");
}

void JournalFile::Read(std::string content) {
  // Its first process may have died while it wrote the header.
  if (content.size() < kHeaderBytes &&
      (AllZero(content) || content.starts_with(kTitle) || kTitle.starts_with(content))) {
    cut_bytes_ = static_cast<int64_t>(content.size());
    return;
  }
  if (!content.starts_with(kTitle)) {
    throw ConfigError(path_ + " is no journal of this program; remove it, or choose another place");
  }
  size_t at = kHeaderBytes;
  while (at < content.size()) {
    const auto [found, record] = FirstRecord(std::string_view(content).substr(at));
    if (found == Found::kUnfinished) break;
    if (found == Found::kDamaged) {
      throw DataError(path_ + " is damaged at byte " + std::to_string(at) +
                      ": what is there is not what was written; nothing can go on from it. Remove "
                      "it to begin anew");
    }
    at += sizeof(Frame) + record.size();
  }
  size_ = static_cast<int64_t>(at);
  cut_bytes_ = static_cast<int64_t>(content.size() - at);
  content.resize(at);
  past_ = std::move(content);
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
  std::string_view left = past_;
  left.remove_prefix(std::min(left.size(), kHeaderBytes));
  while (!left.empty()) {
    const std::string_view record = FirstRecord(left).second;
    take(record);
    left.remove_prefix(sizeof(Frame) + record.size());
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
  std::string content;
  std::array<char, 65536> part{};
  while (true) {
    const ssize_t size =
        pread(descriptor, part.data(), part.size(), at_ + static_cast<int64_t>(content.size()));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) break;
    content.append(part.data(), static_cast<size_t>(size));
  }
  close(descriptor);
  std::string_view left = content;
  if (at_ == 0) {
    if (left.size() < kHeaderBytes || !left.starts_with(kTitle)) return records;
    left.remove_prefix(kHeaderBytes);
    at_ = kHeaderBytes;
  }
  while (true) {
    const auto [found, record] = FirstRecord(left);
    if (found != Found::kRecord) return records;
    records.emplace_back(record);
    const size_t bytes = sizeof(Frame) + record.size();
    left.remove_prefix(bytes);
    at_ += static_cast<int64_t>(bytes);
  }
}

}  // namespace poseidon
