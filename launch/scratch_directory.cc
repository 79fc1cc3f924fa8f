#include "launch/scratch_directory.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/atomic_file.h"
#include "core/error.h"

namespace poseidon {
namespace {

void Remove(const std::string& directory) {
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
}

}  // namespace

std::string SystemTemporaryDirectory() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::temp_directory_path(error);
  if (!error) return path.string();
  const char* const named = getenv("TMPDIR");
  if (named == nullptr) {
    throw ConfigError("there is no directory for temporary files; set TMPDIR to one");
  }
  throw ConfigError(std::string("there is no directory ") + named +
                    " for temporary files; set TMPDIR to one, or unset it");
}

ScratchDirectory::ScratchDirectory()
    : path_(SystemTemporaryDirectory() + "/poseidon-scratch-XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) {
    throw Error(ExitCode::kFailure, "can't make the directory " + path_ + ": " +
                                        std::strerror(errno) +
                                        "; make room there, or set TMPDIR to another directory");
  }
  // A full disk may have room for a directory and for no file.
  try {
    const std::string probe = path_ + "/probe";
    WriteFileQuickly(probe, "room");
    Remove(probe);
  } catch (const Error& error) {
    Remove(path_);
    throw Error(error.exit_code(), std::string(error.what()) +
                                       "; make room there, or set TMPDIR to another directory");
  }
}

ScratchDirectory::~ScratchDirectory() { Remove(path_); }

}  // namespace poseidon
