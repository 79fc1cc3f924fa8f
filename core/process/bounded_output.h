// BoundedOutput: a program that must go on does not wait for whoever reads what it says.
#pragma once

#include <memory>
#include <ostream>
#include <streambuf>

namespace poseidon {

// While it lives, what is written to the stream goes to the descriptor, and where that is a pipe, a
// terminal or a socket of which nobody takes anything for two seconds, as of a pager that is not
// scrolled or a terminal after Ctrl-S, it is dropped, until somebody does. Then a line says how
// much was. Whatever else the descriptor is, a file in most cases, the stream stays as it is.
// Writing to a reader that is gone is no failure (core/process/standard_output.h).
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
  std::unique_ptr<Buffer> buffer_;  // null where the stream stays as it is
  std::streambuf* before_ = nullptr;
};

}  // namespace poseidon
