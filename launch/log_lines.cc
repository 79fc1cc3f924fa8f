#include "launch/log_lines.h"

#include <deque>
#include <fstream>
#include <regex>

namespace poseidon {

std::string LastWords(const std::string& path) {
  // glog's fatal lines, what the C++ runtime says of an exception that nobody catches and of a call
  // without a function, assert()'s and ZeroMQ's failed assertions, and what the C library says of a
  // damaged heap or stack. glog's own "***" lines follow a fatal one and say less.
  static const std::regex last_words(
      R"(^(F\d{4,8} .*|terminate called .*|  what\(\): .*|pure virtual method called)"
      R"(|.*: Assertion `.*' failed\.|.* \(src/\w+\.[ch]pp:\d+\))"
      R"(|(free|malloc|realloc|munmap_chunk|malloc_consolidate)\(\): .*)"
      R"(|double free or corruption .*|corrupted .*|Fatal glibc error: .*)"
      R"(|\*\*\* .* detected \*\*\*.*)$)");
  std::ifstream file(path);
  std::string words;
  for (std::string line; std::getline(file, line);) {
    if (!std::regex_match(line, last_words)) continue;
    if (line.starts_with("  what()") && words.starts_with("terminate")) {
      words += line.substr(1);
    } else if (line.starts_with("terminate") && words.starts_with("pure virtual")) {
      words += "; " + line;
    } else {
      words = line;
    }
  }
  return words;
}

std::string LastLines(const std::string& path, size_t most) {
  std::ifstream file(path);
  std::deque<std::string> lines;
  std::string line;
  while (std::getline(file, line)) {
    if (line.empty()) continue;
    lines.push_back(line);
    if (lines.size() > most) lines.pop_front();
  }
  std::string text;
  for (const std::string& last : lines) text += last + "\n";
  return text;
}

}  // namespace poseidon
