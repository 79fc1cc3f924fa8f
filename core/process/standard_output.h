// A program's standard output, watched: what could not be written is told at the program's end.
#pragma once

#include <memory>
#include <optional>
#include <streambuf>
#include <string>

namespace poseidon {

// While it lives, std::cout writes to standard output through it, in turn with what C's functions
// write there. Once a write has failed nothing more is written, since what has a hole is of no use,
// and std::cout never tells its users of it. Where what is shown is not what the program is for, as
// the progress of a training, it is a BoundedOutput's (core/process/bounded_output.h). Writing to a
// pipe that nobody reads any more (`| head -1`) is no failure, as the reader has what it wanted;
// SIGPIPE must be ignored.
// At most one lives at a time. Not thread-safe, as std::cout's buffers are not.
//
//   StandardOutput output;
//   std::cout << "hello\n";
//   if (const auto why = output.Finish()) std::cerr << "can't write: " << *why << std::endl;
class StandardOutput {
 public:
  StandardOutput();
  ~StandardOutput();
  StandardOutput(const StandardOutput&) = delete;
  StandardOutput& operator=(const StandardOutput&) = delete;

  // Writes what waits. Why something could not be written ("No space left on device"), or nothing
  // if all has been.
  std::optional<std::string> Finish();

 private:
  class Buffer;

  std::unique_ptr<Buffer> buffer_;
  std::streambuf* before_;
};

// Whether something could not be written to standard output: whoever shows things without an end
// ends then. RunProgram says why, or nothing where the reader has gone.
bool HasOutputFailed();

}  // namespace poseidon
