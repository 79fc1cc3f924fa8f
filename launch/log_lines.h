// What the end of a log says, for messages. Functions without state.
#pragma once

#include <string>

namespace poseidon {

// What a process that was killed by a signal of its own (abort, a failed CHECK or assertion, an
// exception that nobody caught, a damaged heap) has said of it in its log; "" if nothing.
std::string LastWords(const std::string& path);

// The last lines of a file that are not empty, at most so many, each with a line's end.
std::string LastLines(const std::string& path, size_t most);

}  // namespace poseidon
