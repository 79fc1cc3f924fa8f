#include "core/process/copied_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

namespace poseidon {
namespace {

// As much as a pipe has.
constexpr size_t kPartBytes = 65536;
// Who never stops to write must not keep this program from its own work.
constexpr int kMostParts = 16;

}  // namespace

CopiedLog::CopiedLog(int source, int file, std::string mark)
    : source_(source), file_(file), mark_(std::move(mark)) {
  fcntl(source_, F_SETFL, O_NONBLOCK);
  output_.emplace(stream_, file_);
}

CopiedLog::~CopiedLog() {
  Copy();
  output_.reset();
  close(file_);
  close(source_);
}

void CopiedLog::Copy() {
  std::array<char, kPartBytes> part;
  for (int parts = 0; parts < kMostParts; ++parts) {
    const ssize_t size = read(source_, part.data(), part.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return;
    LookForMark({part.data(), static_cast<size_t>(size)});
    stream_.write(part.data(), size).flush();
  }
}

void CopiedLog::LookForMark(std::string_view part) {
  for (const char letter : part) {
    if (has_mark()) return;
    if (letter == '\n') {
      line_.clear();
    } else if (line_.size() < mark_.size()) {
      line_ += letter;
    }
  }
}

}  // namespace poseidon
