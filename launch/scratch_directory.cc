#include "launch/scratch_directory.h"

#include <stdlib.h>

#include <filesystem>

#include "core/error.h"

namespace poseidon {

ScratchDirectory::ScratchDirectory()
    : path_((std::filesystem::temp_directory_path() / "poseidon-scratch-XXXXXX").string()) {
  if (mkdtemp(path_.data()) == nullptr) {
    throw Error(ExitCode::kFailure, "can't make the directory " + path_ +
                                        "; is there room, and may this user write there?");
  }
}

ScratchDirectory::~ScratchDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace poseidon
