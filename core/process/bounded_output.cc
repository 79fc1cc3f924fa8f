#include "core/process/bounded_output.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

namespace poseidon {
namespace {

using Clock = std::chrono::steady_clock;

// Longer than a terminal on the other side of the world is busy, and shorter than any deadline.
constexpr std::chrono::seconds kPatience(2);

bool HasReader(int descriptor) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) return false;
  return S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) || isatty(descriptor) != 0;
}

// The same pipe or terminal, opened once more: to make the descriptor itself non-blocking would
// make it so for all programs that have inherited it. -1 for what can't be opened, as a socket.
int OpenNonBlocking(int descriptor) {
  const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  return open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

bool AwaitRoom(int descriptor, Clock::time_point deadline) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  pollfd waits = {descriptor, POLLOUT, 0};
  return poll(&waits, 1, static_cast<int>(std::max<int64_t>(left.count(), 0))) > 0;
}

}  // namespace

class BoundedOutput::Buffer : public std::streambuf {
 public:
  explicit Buffer(int descriptor)
      : has_reader_(HasReader(descriptor)),
        opened_(has_reader_ ? OpenNonBlocking(descriptor) : -1),
        descriptor_(opened_ >= 0 ? opened_ : descriptor) {}
  ~Buffer() override {
    Flush();
    if (opened_ >= 0) close(opened_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  int sync() override {
    Flush();
    return 0;
  }

 protected:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    text_.append(text, static_cast<size_t>(size));
    return size;
  }

  int_type overflow(int_type letter) override {
    if (traits_type::eq_int_type(letter, traits_type::eof())) return traits_type::not_eof(letter);
    text_.push_back(traits_type::to_char_type(letter));
    return letter;
  }

 private:
  void Flush() {
    const std::string text = std::exchange(text_, {});
    // Who has been waited for in vain is not waited for again.
    const Clock::time_point deadline =
        Clock::now() + (dropped_ > 0 ? std::chrono::seconds(0) : kPatience);
    if (dropped_ > 0 &&
        Write("\n(" + std::to_string(dropped_) + " bytes " + why_ + ")\n", deadline) > 0) {
      dropped_ += text.size();
      return;
    }
    const bool is_first = dropped_ == 0;
    dropped_ = Write(text, deadline);
    if (dropped_ > 0 && is_first) Warn();
  }

  // Returns how many bytes at the end have not been taken by then.
  size_t Write(std::string_view text, Clock::time_point deadline) {
    while (!text.empty()) {
      // A write that may block is only made where there is room, which is for so many bytes then.
      if (opened_ < 0 && !AwaitRoom(descriptor_, deadline)) return NotTaken(text);
      const size_t some = std::min<size_t>(text.size(), PIPE_BUF);
      const ssize_t written = write(descriptor_, text.data(), some);
      if (written >= 0) {
        text.remove_prefix(static_cast<size_t>(written));
      } else if (errno == EAGAIN) {
        if (!AwaitRoom(descriptor_, deadline) || Clock::now() > deadline) return NotTaken(text);
      } else if (errno != EINTR) {
        if (has_reader_) return 0;  // it is gone
        why_ = std::string("were not written: ") + std::strerror(errno);
        return text.size();
      }
    }
    return 0;
  }

  size_t NotTaken(std::string_view rest) {
    why_ = "were not shown, as nobody took them";
    return rest.size();
  }

  // Whoever looks for progress in a file is to know why it has none.
  void Warn() const {
    LOG_IF(WARNING, descriptor_ == STDOUT_FILENO)
        << "can't write to standard output: " << dropped_ << " bytes " << why_
        << "; this goes on, and writes again once there is room";
  }

  const bool has_reader_;
  const int opened_;
  const int descriptor_;
  std::string text_;    // since the last sync
  size_t dropped_ = 0;  // bytes that were not taken, since the last that were
  std::string why_;     // "were not written: No space left on device"
};

BoundedOutput::BoundedOutput(std::ostream& stream, int descriptor)
    : stream_(stream.flush()),
      buffer_(std::make_unique<Buffer>(descriptor)),
      before_(stream.rdbuf(buffer_.get())) {}

BoundedOutput::~BoundedOutput() { stream_.rdbuf(before_); }

}  // namespace poseidon
