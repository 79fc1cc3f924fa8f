#include "core/named_file.h"

#include <filesystem>

namespace poseidon {

std::optional<std::string> FindNamedFile(const std::string& named_in, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  // Who opens it says why it can't be looked at: a loop of links, no permission.
  std::error_code unknown;
  if (fs::exists(path, unknown) || unknown) return path;
  if (path.empty() || fs::path(path).is_absolute()) return std::nullopt;
  const fs::path beside = fs::path(named_in).parent_path() / path;
  if (fs::exists(beside, ignored)) return beside.string();
  fs::path directory = fs::absolute(named_in, ignored).lexically_normal().parent_path();
  while (directory.has_relative_path()) {
    directory = directory.parent_path();
    if (fs::exists(directory / path, ignored)) return (directory / path).string();
  }
  return std::nullopt;
}

}  // namespace poseidon
