#include "core/process/standard_output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

namespace poseidon {

// Keeps the cause of the first failure, which std::cout by itself forgets.
class StandardOutput::Buffer : public std::streambuf {
 public:
  int failure() const { return failure_; }

  int sync() override {
    if (failure_ == 0 && std::fflush(stdout) != 0) failure_ = errno;
    return 0;
  }

 protected:
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    const auto count = static_cast<size_t>(size);
    if (failure_ == 0 && std::fwrite(text, 1, count, stdout) != count) failure_ = errno;
    return size;
  }

  int_type overflow(int_type letter) override {
    if (traits_type::eq_int_type(letter, traits_type::eof())) return traits_type::not_eof(letter);
    const char text = traits_type::to_char_type(letter);
    xsputn(&text, 1);
    return letter;
  }

 private:
  int failure_ = 0;  // an errno
};

StandardOutput::StandardOutput()
    : buffer_(std::make_unique<Buffer>()), before_(std::cout.rdbuf(buffer_.get())) {}

StandardOutput::~StandardOutput() { std::cout.rdbuf(before_); }

std::optional<std::string> StandardOutput::Finish() {
  std::cout.flush();
  // What C's functions wrote may have failed before, and then nothing says why.
  const int failure = buffer_->failure() != 0    ? buffer_->failure()
                      : std::ferror(stdout) != 0 ? EIO
                                                 : 0;
  if (failure == 0 || failure == EPIPE) return std::nullopt;
  return std::strerror(failure);
}

bool HasOutputFailed() { return std::ferror(stdout) != 0; }

}  // namespace poseidon
