#include "caffe_adapter/python/python_layer.h"

#include <dlfcn.h>

#include <filesystem>

#include "core/process/program_directory.h"

namespace poseidon {

std::unique_ptr<PythonLayer> MakePythonLayer(const PythonLayerOptions& options) {
  const std::string path = SupportFile(kPythonLibrary);
  if (!std::filesystem::exists(path)) {
    throw PythonError("this build has no Python (" + path +
                      " is not there); install python3-dev and python3-numpy, and build "
                      "again");
  }
  // Never unloaded, as Python can't be. Global, because NumPy's libraries expect Python's functions
  // to be there without saying where from.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    throw PythonError(std::string("Python can't be loaded: ") + dlerror() +
                      "; install the libpython that Poseidon was built with, and "
                      "python3-numpy");
  }
  auto* make = reinterpret_cast<MakePythonLayerFunction*>(dlsym(library, kMakePythonLayerName));
  if (make == nullptr) throw PythonError(path + " is of another version of Poseidon");
  return std::unique_ptr<PythonLayer>(make(options));
}

}  // namespace poseidon
