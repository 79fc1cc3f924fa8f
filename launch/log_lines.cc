#include "launch/log_lines.h"

#include <deque>
#include <fstream>
#include <regex>

namespace poseidon {

std::string LastWords(const std::string& path) {
  // glog's fatal lines, and what the C++ runtime says of an exception that nobody catches.
  static const std::regex last_words(R"(^(F\d{4,8} .*|terminate called .*|  what\(\): .*)$)");
  std::ifstream file(path);
  std::string words;
  for (std::string line; std::getline(file, line);) {
    if (!std::regex_match(line, last_words)) continue;
    const bool goes_on = line.starts_with("  what()") && words.starts_with("terminate");
    words = goes_on ? words + line.substr(1) : line;
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
