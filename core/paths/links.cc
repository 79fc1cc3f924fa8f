#include "core/paths/links.h"

#include <filesystem>
#include <system_error>

namespace poseidon {

std::optional<std::string> BehindLinks(const std::string& path) {
  constexpr int kMostLinks = 40;  // the kernel's
  std::filesystem::path target = path;
  bool is_directory = false;  // as a slash at a link's end says
  std::error_code error;
  for (int links = 0; links <= kMostLinks; ++links) {
    const std::filesystem::path next = std::filesystem::read_symlink(target, error);
    if (error) return (is_directory ? target / "" : target).string();  // most often it is no link
    target = target.parent_path() / next;
    if (target.has_filename()) continue;
    is_directory = true;
    target = target.parent_path();
  }
  return std::nullopt;
}

}  // namespace poseidon
