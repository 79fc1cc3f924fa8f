#include "caffe_adapter/data/image_list.h"

#include <charconv>

#include "caffe_adapter/files/file.h"
#include "core/error.h"

namespace poseidon {

std::vector<ListedImage> ReadImageList(const std::string& path) {
  std::vector<ListedImage> images;
  int64_t number = 0;
  for (const std::string& line : ReadLines(path)) {
    ++number;
    if (line.empty()) continue;
    const size_t blank = line.find_last_of(" \t");
    ListedImage image{line.substr(0, blank), 0, number};
    const char* begin = line.data() + (blank == std::string::npos ? 0 : blank + 1);
    const char* end = line.data() + line.size();
    const auto [stop, error] = std::from_chars(begin, end, image.label);
    if (blank == std::string::npos || error != std::errc() || stop != end) {
      throw DataError(path + ":" + std::to_string(number) + ": \"" + line +
                      "\"; expected the path of an image, a blank and its label, a whole number");
    }
    image.path.erase(image.path.find_last_not_of(" \t") + 1);
    images.push_back(std::move(image));
  }
  if (images.empty()) throw DataError(path + ": lists no images");
  return images;
}

}  // namespace poseidon
