#include "core/process/input_lines.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace poseidon {
namespace {

bool IsReadable(int descriptor) {
  pollfd asked = {descriptor, POLLIN, 0};
  return poll(&asked, 1, 0) == 1;
}

}  // namespace

std::vector<std::string> InputLines::Take() {
  char buffer[4096];
  while (!ended_ && IsReadable(descriptor_)) {
    const ssize_t count = read(descriptor_, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      ended_ = true;
    } else {
      begun_.append(buffer, static_cast<size_t>(count));
    }
  }
  std::vector<std::string> lines;
  size_t begin = 0;
  for (size_t end; (end = begun_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    lines.push_back(begun_.substr(begin, end - begin));
  }
  begun_.erase(0, begin);
  return lines;
}

}  // namespace poseidon
