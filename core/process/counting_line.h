// CountingLine: shows on the standard error output how much of a long work is done.
#pragma once

#include <chrono>
#include <cstdint>
#include <ostream>
#include <string>

namespace poseidon {

// On a terminal one line counts, in a log there are at most ten. Not thread-safe.
//
//   CountingLine line("iteration");
//   for (int64_t i = 1; i <= 200; ++i) {
//     Iterate();
//     line.Show(i, 200);  // iteration 20/200, iteration 40/200, ...
//   }
class CountingLine {
 public:
  // `what` is counted. Nothing is shown in the first `silence`, for work that mostly is short.
  explicit CountingLine(std::string what, std::chrono::nanoseconds silence = {});
  // Elsewhere than on the standard error output. The stream outlives this.
  CountingLine(std::string what, std::chrono::nanoseconds silence, std::ostream& out,
               bool is_terminal);
  // Ends a line that still counts, so that what is written next, as an error, has its own.
  ~CountingLine();
  CountingLine(const CountingLine&) = delete;
  CountingLine& operator=(const CountingLine&) = delete;

  // `done` of `all` are done, 0 < done <= all; one more each time.
  void Show(int64_t done, int64_t all);

 private:
  std::string what_;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::nanoseconds silence_;
  std::ostream& out_;
  bool is_terminal_;
  bool is_open_ = false;  // a line on the terminal that still counts
};

}  // namespace poseidon
