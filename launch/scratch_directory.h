// ScratchDirectory: a directory for files that nobody needs afterwards.
#pragma once

#include <string>

namespace poseidon {

// The system's directory for temporary files. Throws ConfigError if there is none.
std::string SystemTemporaryDirectory();

// Made for the system's temporary files, under a name that nobody can guess, and removed with all
// that is in it.
class ScratchDirectory {
 public:
  // Throws Error if it can't be made, or has no room for a file.
  ScratchDirectory();
  ~ScratchDirectory();
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace poseidon
