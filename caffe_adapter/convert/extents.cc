#include "caffe_adapter/convert/extents.h"

#include "core/error.h"

namespace poseidon {
namespace {

// A record of so many rows and columns of three colors has 805 MB, near Protobuf's limit of 2 GiB.
constexpr int64_t kMostExtent = 16384;

void CheckExtent(const std::string& name, int64_t extent) {
  if (extent >= 0 && extent <= kMostExtent) return;
  throw ConfigError(name + " is " + std::to_string(extent) + "; it must be between 1 and " +
                    std::to_string(kMostExtent) + ", or 0 where it is not given");
}

}  // namespace

void CheckExtents(const std::string& height_name, int64_t height, const std::string& width_name,
                  int64_t width) {
  CheckExtent(height_name, height);
  CheckExtent(width_name, width);
  if ((height == 0) == (width == 0)) return;
  throw ConfigError("give both " + height_name + " and " + width_name + ", or neither");
}

}  // namespace poseidon
