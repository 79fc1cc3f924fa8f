#include "core/process/counting_line.h"

#include <unistd.h>

#include <iostream>
#include <utility>

namespace poseidon {
namespace {

// A terminal is slower than much of what is counted, and nobody sees more.
constexpr int64_t kStepsOnTerminal = 1000;
constexpr int64_t kStepsInLog = 10;

}  // namespace

CountingLine::CountingLine(std::string what, std::chrono::nanoseconds silence)
    : CountingLine(std::move(what), silence, std::cerr, isatty(STDERR_FILENO) != 0) {}

CountingLine::CountingLine(std::string what, std::chrono::nanoseconds silence, std::ostream& out,
                           bool is_terminal)
    : what_(std::move(what)),
      begin_(std::chrono::steady_clock::now()),
      silence_(silence),
      out_(out),
      is_terminal_(is_terminal) {}

CountingLine::~CountingLine() {
  if (is_open_) out_ << std::endl;
}

void CountingLine::Show(int64_t done, int64_t all) {
  const int64_t steps = is_terminal_ ? kStepsOnTerminal : kStepsInLog;
  if (done * steps / all == (done - 1) * steps / all) return;
  if (std::chrono::steady_clock::now() - begin_ < silence_) return;
  is_open_ = is_terminal_ && done < all;
  out_ << (is_terminal_ ? "\r" : "") << what_ << ' ' << done << '/' << all << (is_open_ ? "" : "\n")
       << std::flush;
}

}  // namespace poseidon
