// Which of the system's errors (errno) are of the moment, and not of the path that was given. Pure.
#pragma once

#include <string_view>

namespace poseidon {

// Whether it is not the file that is wrong, but how this machine gets at it just now: its disk or
// file server, the network to that, or what the machine has no more of.
bool MayPass(int error);

// The same, and what somebody may make room for.
bool MayPassForWriting(int error);

// As MayPass, where a library says only the error's text, at the end of its own.
bool EndsWithPassingError(std::string_view message);

// Whether this user may not do it there, or nobody may, as on a disk that is mounted read-only:
// another try is of no use.
bool IsDenied(int error);

}  // namespace poseidon
