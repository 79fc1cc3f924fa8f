#include "core/files/log_lines.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <regex>
#include <sstream>
#include <vector>

namespace poseidon {
namespace {

// The last bytes of the file; "" if it can't be read.
std::string EndOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  file.seekg(0, std::ios::end);
  const int64_t size = file.tellg();
  if (size <= 0) return "";
  std::string text(std::min(static_cast<size_t>(size), kMostLogBytes), '\0');
  file.seekg(size - static_cast<int64_t>(text.size()));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

// Those that are not empty.
std::vector<std::string> LinesAtEnd(const std::string& path) {
  std::string text = EndOf(path);
  std::ranges::replace(text, '\r', '\n');
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    if (!line.empty()) lines.push_back(line.substr(0, kMostLineBytes));
  }
  return lines;
}

}  // namespace

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
  std::string words;
  for (const std::string& line : LinesAtEnd(path)) {
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
  const std::vector<std::string> lines = LinesAtEnd(path);
  std::string text;
  for (size_t i = lines.size() - std::min(most, lines.size()); i < lines.size(); ++i) {
    text += lines[i] + "\n";
  }
  return text;
}

}  // namespace poseidon
