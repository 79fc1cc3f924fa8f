// Caffe's lists of windows in images, as its R-CNN example makes them:
//
//   # 0                             the image's number, which nothing reads
//   images/000005.jpg               its path, without blanks
//   3 375 500                       its channels, height and width
//   2                               how many windows follow, a line each:
//   9 0.8125 262 210 323 338        class, overlap with an object, left, top, right and bottom;
//   0 0.1 0 0 99 119                the last column and row belong to the window
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace poseidon {

struct Window {
  int32_t image = 0;  // of WindowList::images
  int32_t label = 0;  // 0 for the background
  int32_t left = 0;
  int32_t top = 0;
  int32_t right = 0;   // inclusive
  int32_t bottom = 0;  // inclusive
  int64_t line = 0;    // in the list, from 1
};

struct WindowList {
  std::vector<std::string> images;  // paths
  std::vector<Window> foreground;   // with objects, of which each has a class of at least 1
  std::vector<Window> background;
  uint64_t fingerprint = 0;  // of the list's text
};

// A window whose overlap is at least `foreground_threshold` is of the foreground; one below
// `background_threshold` of the background, whatever its class; what is neither is left out. Throws
// DataError naming file and line for what is no such list.
WindowList ReadWindowList(const std::string& path, float foreground_threshold,
                          float background_threshold);

}  // namespace poseidon
