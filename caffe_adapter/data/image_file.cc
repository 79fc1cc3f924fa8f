#include "caffe_adapter/data/image_file.h"

#include <dlfcn.h>

#include <filesystem>

#include "caffe_adapter/data/image_library.h"
#include "caffe_adapter/files/file.h"
#include "core/error.h"
#include "core/process/program_directory.h"

namespace poseidon {
namespace {

// What is said of `name` where there is no library.
ImageLibrary Load(const std::string& name) {
  const std::string path = SupportFile(kImageLibraryFile);
  if (!HasImageFiles()) {
    throw DataError(name +
                    ": reading and writing image files needs OpenCV, which this build lacks (" +
                    path + " is not there); install libopencv-imgcodecs-dev and build again");
  }
  // Never unloaded: what OpenCV has started does not end before the process.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw DataError(name + ": OpenCV, which reads and writes image files, can't be loaded: " +
                    dlerror() + "; install the OpenCV that Poseidon was built with");
  }
  auto* functions = reinterpret_cast<ImageLibraryFunction*>(dlsym(library, kImageLibraryName));
  if (functions == nullptr) throw DataError(path + " is of another version of Poseidon");
  return functions();
}

// Loaded once; an attempt that has failed is made again.
const ImageLibrary& Library(const std::string& name) {
  static const ImageLibrary library = Load(name);
  return library;
}

}  // namespace

bool HasImageFiles() { return std::filesystem::exists(SupportFile(kImageLibraryFile)); }

ByteImage DecodeImage(std::string_view file, ImageChannels channels, const std::string& name) {
  return Library(name).decode(file, channels, 0, 0, name);
}

ByteImage ReadImageFile(const std::string& path, ImageChannels channels, int64_t height,
                        int64_t width) {
  return Library(path).decode(ReadFile(path), channels, height, width, path);
}

ByteImage ResizeRegion(const ByteImage& image, const ImageRegion& region, int64_t height,
                       int64_t width) {
  return Library("a window of an image").resize_region(image, region, height, width);
}

std::string EncodeImage(const ByteImage& image, const std::string& type) {
  return Library(type).encode(image, type);
}

}  // namespace poseidon
