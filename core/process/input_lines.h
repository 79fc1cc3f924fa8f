// InputLines: the lines that another process writes into a descriptor of this one, for a loop that
// must not wait for them.
//
//   InputLines input(STDIN_FILENO);
//   while (...) {
//     for (const std::string& line : input.Take()) ...
//     if (input.ended()) ...  // the other process has closed its end, or is gone
//   }
#pragma once

#include <string>
#include <vector>

namespace poseidon {

// Belongs to one thread. Does not own the descriptor.
class InputLines {
 public:
  explicit InputLines(int descriptor) : descriptor_(descriptor) {}

  // What has come since the last call, without the line ends; does not wait. A line is given when
  // its end has come, and what follows the last line's end never is.
  std::vector<std::string> Take();
  // Whether nothing can come any more; what can't be read has ended, too.
  bool ended() const { return ended_; }

 private:
  int descriptor_;
  std::string begun_;  // a line whose end has not come
  bool ended_ = false;
};

}  // namespace poseidon
