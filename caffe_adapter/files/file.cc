#include "caffe_adapter/files/file.h"

#include <sstream>

#include "core/files/regular_file.h"
#include "core/text/utf8.h"

namespace poseidon {

std::string ReadFile(const std::string& path) {
  return ReadRegularFile(path, ExitCode::kDataError, kMostFileBytes);
}

std::string ReadText(const std::string& path) {
  return std::string(WithoutByteOrderMark(ReadFile(path)));
}

std::vector<std::string> ReadLines(const std::string& path) {
  std::istringstream stream(ReadText(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    lines.push_back(line);
  }
  return lines;
}

}  // namespace poseidon
