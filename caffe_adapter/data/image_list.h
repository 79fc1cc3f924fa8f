// Caffe's lists of image files: a path and a label a line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace poseidon {

struct ListedImage {
  std::string path;
  int label = 0;
  int64_t line = 0;  // from 1
};

// Reads "PATH LABEL" lines; the last blank parts them, so that paths may have blanks. Empty lines
// are passed over. Throws DataError for a file that can't be read or lists nothing, and naming the
// line for one without a label that is a whole number.
std::vector<ListedImage> ReadImageList(const std::string& path);

}  // namespace poseidon
