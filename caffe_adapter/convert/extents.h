// Heights and widths that a user asks for.
#pragma once

#include <cstdint>
#include <string>

namespace poseidon {

// The height and width of images, both or neither, where 0 is "not given". Throws ConfigError that
// calls them `height_name` and `width_name`, also for more pixels than an image can be thought to
// have.
void CheckExtents(const std::string& height_name, int64_t height, const std::string& width_name,
                  int64_t width);

}  // namespace poseidon
