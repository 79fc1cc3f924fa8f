#include "caffe_adapter/files/file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/error.h"

namespace poseidon {

std::string ReadFile(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw DataError("can't read " + path + ": it is a directory");
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw DataError("can't read " + path + ": " + std::strerror(errno));
  std::ostringstream bytes;
  bytes << stream.rdbuf();
  if (stream.bad()) throw DataError("can't read " + path);
  return std::move(bytes).str();
}

std::vector<std::string> ReadLines(const std::string& path) {
  std::istringstream stream(ReadFile(path));
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) {
    line.erase(line.find_last_not_of(" \t\r") + 1);
    lines.push_back(line);
  }
  return lines;
}

}  // namespace poseidon
