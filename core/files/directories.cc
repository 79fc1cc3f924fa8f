#include "core/files/directories.h"

#include <filesystem>

#include "core/error.h"
#include "core/paths/passing_error.h"

namespace poseidon {

void MakeDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return;
  const std::string message = "can't make the directory " + path + ": " + error.message();
  if (MayPassForWriting(error.value())) throw Error(ExitCode::kFailure, message);
  throw ConfigError(message + "; choose another one");
}

}  // namespace poseidon
