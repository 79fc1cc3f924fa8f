#include "core/process/program_directory.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>

namespace poseidon {
namespace {

namespace fs = std::filesystem;

}  // namespace

std::string ProgramDirectory() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  return fs::path(std::string(path, std::max<ssize_t>(length, 0))).parent_path().string();
}

std::string NamedWorkingDirectory() {
  const char* const entered = std::getenv("PWD");
  if (entered != nullptr) {
    const fs::path named = fs::path(entered).lexically_normal();
    std::error_code different;
    if (named.is_absolute() && named.has_filename() && fs::equivalent(named, ".", different)) {
      return named.string();
    }
  }
  return fs::current_path().string();
}

std::string SupportFile(const std::string& name) {
  const fs::path here = ProgramDirectory();
  const fs::path installed = here.parent_path() / "lib" / "poseidon" / name;
  return (!fs::exists(here / name) && fs::exists(installed) ? installed : here / name).string();
}

}  // namespace poseidon
