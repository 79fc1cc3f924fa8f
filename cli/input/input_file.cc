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

std::optional<std::string> MeantFile(const std::string& path) {
  const auto above_program = FindNamedFile(ProgramDirectory() + "/poseidon", path);
  return above_program ? above_program : SimilarFile(path);
}

}  // namespace

const std::string& CheckInputFile(const std::string& path) {
  // What is there but can't be looked at, such as a loop of links, is for its reader to tell.
  std::error_code unknown;
  if (path.empty() || fs::exists(path, unknown) || unknown) return path;
  std::string message = "can't read " + path + ": No such file or directory";
  if (fs::path(path).is_relative()) {
    message += " (the working directory is " + fs::current_path(unknown).string() + ")";
  }
  const auto meant = MeantFile(path);
  throw ConfigError(message + (meant ? "; did you mean " + *meant + "?" : ""));
}

}  // namespace poseidon
