// Files that are read as input. All of them are opened here or checked here first, as a pipe, a
// device or a file of the kernel's would let the reader wait for ever, or read until memory is
// gone. Functions without state; thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.h"

namespace poseidon {

// More than any text that people or tools write for this project's programs: a net of ten thousand
// layers has two million bytes.
constexpr int64_t kMostTextBytes = int64_t{64} << 20;
// Of files that are kept in memory as they are: lists of images, images.
constexpr int64_t kMostFileBytes = int64_t{4} << 30;

// Checks that `path` is a regular file whose first byte can be read, and returns its size in bytes.
// Throws the error of `code` that says what it is instead, or why it can't be read: "can't read
// net.prototxt: it is a directory". What says nothing of the file, as a file server that does not
// answer or a table of open files that is full, is Error of kFailure whatever the code: it may have
// passed when the program is run again.
//
//   CheckRegularFile(path, ExitCode::kDataError);
//   std::ifstream stream(path);  // neither waits for ever nor has no end
int64_t CheckRegularFile(const std::string& path, ExitCode code);

// Throws for a regular file that can't be read, `error` being the system's number of the reason: as
// CheckRegularFile does.
[[noreturn]] void ThrowReadError(const std::string& path, int error, ExitCode code);

// All bytes of a regular file of at most `most`. Throws as CheckRegularFile does.
std::string ReadRegularFile(const std::string& path, ExitCode code, int64_t most = kMostTextBytes);

// The same of a text, with whether it is this user's or root's: what another user has written must
// not decide what becomes of this user's secrets.
struct OwnedText {
  std::string text;
  bool trusted = false;
};
OwnedText ReadOwnedText(const std::string& path, ExitCode code);

}  // namespace poseidon
