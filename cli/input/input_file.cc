#include "cli/input/input_file.h"

#include <filesystem>
#include <optional>
#include <vector>

#include "core/error.h"
#include "core/named_file.h"
#include "core/process/program_directory.h"
#include "core/text/nearest.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> SimilarFile(const fs::path& path) {
  const fs::path directory = path.parent_path();
  std::error_code ignored;
  std::vector<std::string> names;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(directory.empty() ? "." : directory, ignored)) {
    names.push_back(entry.path().filename().string());
  }
  const auto name = Nearest(path.filename().string(), names);
  if (!name) return std::nullopt;
  return (directory / *name).string();
}

// Where the program is installed (packaging/CMakeLists.txt).
std::optional<std::string> InstalledFile(const fs::path& path) {
  const fs::path installed = fs::path(ProgramDirectory()).parent_path() / "share/poseidon" / path;
  std::error_code ignored;
  if (path.is_absolute() || !fs::exists(installed, ignored)) return std::nullopt;
  return installed.string();
}

// What is there but can't be looked at, such as a loop of links, is for its reader to tell.
bool IsThere(const std::string& path) {
  std::error_code unknown;
  return path.empty() || fs::exists(path, unknown) || unknown;
}

}  // namespace

std::optional<std::string> FileMeantBy(const std::string& path) {
  if (IsThere(path)) return std::nullopt;
  if (auto above_program = FindNamedFile(ProgramDirectory() + "/poseidon", path)) {
    return above_program;
  }
  if (auto installed = InstalledFile(path)) return installed;
  return SimilarFile(path);
}

const std::string& CheckInputFile(const std::string& path) {
  if (IsThere(path)) return path;
  std::string message = "can't read " + path + ": No such file or directory";
  std::error_code unknown;
  if (fs::path(path).is_relative()) {
    message += " (the working directory is " + fs::current_path(unknown).string() + ")";
  }
  const auto meant = FileMeantBy(path);
  throw ConfigError(message + (meant ? "; did you mean " + *meant + "?" : ""));
}

}  // namespace poseidon
