// What the end of a log says, for messages. A line ends with a line feed or, as progress bars write
// it, with a carriage return; a program may write one without end. So no more than the last
// kMostLogBytes of a log are looked at, and kMostLineBytes of a line. Functions without state;
// thread-safe.
#pragma once

#include <cstddef>
#include <string>

namespace poseidon {

// What somebody quotes stands in the last few lines; and a log of a week has gigabytes.
inline constexpr size_t kMostLogBytes = size_t{1} << 20;
// More than any line that people can read, and few enough for std::regex, which needs 100 bytes of
// the stack for each.
inline constexpr size_t kMostLineBytes = 4096;

// What a process that was killed by a signal of its own (abort, a failed CHECK or assertion, an
// exception that nobody caught, a damaged heap) has said of it in its log; "" if nothing.
std::string LastWords(const std::string& path);

// The last lines of a file that are not empty, at most so many, each with a line's end; "" if it
// can't be read.
std::string LastLines(const std::string& path, size_t most);

}  // namespace poseidon
