// BoundedOutput: a program that must go on does not wait for whoever reads what it says, nor fail
// with the disk that has no room for it.
#pragma once

#include <memory>
#include <ostream>
#include <streambuf>

namespace poseidon {

// While it lives, what is written to the stream goes to the descriptor. Where that is a pipe, a
// terminal or a socket of which nobody takes anything for two seconds, as of a pager that is not
// scrolled or a terminal after Ctrl-S, it is dropped, until somebody does; where it is a file or a
// device that can't be written to, as a full disk, until it can. Then a line says how much was, and
// why. A log tells of standard output that can't be written at once, as that may last. Writing to a
// reader that is gone is no failure (core/process/standard_output.h).
//
//   const BoundedOutput output(std::cout, STDOUT_FILENO);
//   const BoundedOutput errors(std::cerr, STDERR_FILENO);
//
// The stream outlives it. Not thread-safe, as a stream's buffer is not.
class BoundedOutput {
 public:
  BoundedOutput(std::ostream& stream, int descriptor);
  ~BoundedOutput();
  BoundedOutput(const BoundedOutput&) = delete;
  BoundedOutput& operator=(const BoundedOutput&) = delete;

 private:
  class Buffer;

  std::ostream& stream_;
  std::unique_ptr<Buffer> buffer_;
  std::streambuf* before_;
};

}  // namespace poseidon
