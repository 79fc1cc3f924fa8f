#include "core/process/program_directory.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <filesystem>

namespace poseidon {

std::string ProgramDirectory() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return std::filesystem::path(std::string(path, std::max<ssize_t>(length, 0)))
      .parent_path()
      .string();
}

std::string SupportFile(const std::string& name) {
  namespace fs = std::filesystem;
  const fs::path here = ProgramDirectory();
  const fs::path installed = here.parent_path() / "lib" / "poseidon" / name;
  return (!fs::exists(here / name) && fs::exists(installed) ? installed : here / name).string();
}

}  // namespace poseidon
