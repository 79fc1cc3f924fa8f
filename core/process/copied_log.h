// CopiedLog: what another process says, brought to a file by this one.
#pragma once

#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "core/process/bounded_output.h"

namespace poseidon {

// Whoever writes to the pipe never hears that the file has no room: ssh, for one, closes what it
// could not write to once, and then keeps the program on the other machine waiting for ever. What
// the file could not take is missing in it, and a line there says how much it was. What is looked
// for is found whatever becomes of the file, which somebody may empty or remove. Not thread-safe.
//
//   CopiedLog log(pipe_ends[0], file, "ready");
//   while (!log.has_mark()) log.Copy();
class CopiedLog {
 public:
  // Owns both descriptors: a pipe's end to read from, and the file. `mark` is how the line begins
  // that is looked for.
  CopiedLog(int source, int file, std::string mark);
  ~CopiedLog();
  CopiedLog(const CopiedLog&) = delete;
  CopiedLog& operator=(const CopiedLog&) = delete;

  // Copies what is in the pipe now, and does not wait for more.
  void Copy();
  // Whether a line that begins so has come.
  bool has_mark() const { return line_ == mark_; }

 private:
  void LookForMark(std::string_view part);

  const int source_;
  const int file_;
  const std::string mark_;
  std::string line_;  // how the present line begins, no longer than the mark; then that of the mark
  std::ostream stream_{nullptr};
  std::optional<BoundedOutput> output_;
};

}  // namespace poseidon
