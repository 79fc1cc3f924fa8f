#include "caffe_adapter/files/hdf5_writer.h"

#include <vector>

#include "core/atomic_file.h"
#include "core/error.h"

#if POSEIDON_HDF5
#include "caffe_adapter/files/hdf5_library.h"
#endif

namespace poseidon {

#if POSEIDON_HDF5

namespace {

// The file grows by so much at a time.
constexpr size_t kStep = size_t{1} << 20U;

[[noreturn]] void Fail(const std::string& path, const std::string& what) {
  throw Error(ExitCode::kFailure, "can't make " + path + ": the HDF5 library refuses " + what);
}

hid_t MakeDataset(int64_t file, const std::string& path, const std::string& name, hid_t type,
                  hid_t space) {
  const Hdf5Handle links(H5Pcreate(H5P_LINK_CREATE), H5Pclose);
  H5Pset_create_intermediate_group(links.id(), 1);
  const hid_t dataset =
      H5Dcreate2(file, name.c_str(), type, space, links.id(), H5P_DEFAULT, H5P_DEFAULT);
  if (dataset < 0) Fail(path, "dataset " + name);
  return dataset;
}

// With the library's lock held, which also naming its types needs.
void AddDataset(int64_t file, const std::string& path, const std::string& name, hid_t type,
                const Shape& shape, const void* values) {
  const std::vector<hsize_t> extents(shape.begin(), shape.end());
  const Hdf5Handle space(
      extents.empty() ? H5Screate(H5S_SCALAR)
                      : H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr),
      H5Sclose);
  const Hdf5Handle dataset(MakeDataset(file, path, name, type, space.id()), H5Dclose);
  if (H5Dwrite(dataset.id(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0) {
    Fail(path, "the values of " + name);
  }
}

}  // namespace

Hdf5Writer::Hdf5Writer(const std::string& path) : path_(path) {
  const Hdf5Library library;
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_fapl_core(access.id(), kStep, /*backing_store=*/0);
  file_ = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.id());
  if (file_ < 0) Fail(path_, "a file in memory");
}

Hdf5Writer::~Hdf5Writer() {
  const Hdf5Library library;
  H5Fclose(file_);
}

void Hdf5Writer::AddGroup(const std::string& name) {
  const Hdf5Library library;
  const Hdf5Handle group(H5Gcreate2(file_, name.c_str(), H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT),
                         H5Gclose);
  if (!group.ok()) Fail(path_, "group " + name);
}

void Hdf5Writer::AddFloats(const std::string& dataset, const Shape& shape,
                           std::span<const float> values) {
  const Hdf5Library library;
  AddDataset(file_, path_, dataset, H5T_NATIVE_FLOAT, shape, values.data());
}

void Hdf5Writer::AddInteger(const std::string& dataset, int32_t value) {
  const Hdf5Library library;
  AddDataset(file_, path_, dataset, H5T_NATIVE_INT32, {1}, &value);
}

void Hdf5Writer::AddText(const std::string& dataset, const std::string& text) {
  const Hdf5Library library;
  const Hdf5Handle type(H5Tcopy(H5T_C_S1), H5Tclose);
  H5Tset_size(type.id(), text.size() + 1);
  AddDataset(file_, path_, dataset, type.id(), {}, text.c_str());
}

PreparedFile Hdf5Writer::Prepare() {
  std::string image;
  {
    const Hdf5Library library;
    if (H5Fflush(file_, H5F_SCOPE_GLOBAL) < 0) Fail(path_, "to be written out");
    const ssize_t size = H5Fget_file_image(file_, nullptr, 0);
    if (size < 0) Fail(path_, "its image");
    image.resize(static_cast<size_t>(size));
    if (H5Fget_file_image(file_, image.data(), image.size()) != size) Fail(path_, "its image");
  }
  return PreparedFile(path_, image);
}

#else

Hdf5Writer::Hdf5Writer(const std::string& path) : path_(path) {
  throw Error(ExitCode::kFailure,
              "can't make " + path +
                  ": HDF5 needs its library, which this build lacks; install "
                  "libhdf5-dev and build again, or use snapshot_format: BINARYPROTO");
}

Hdf5Writer::~Hdf5Writer() = default;

void Hdf5Writer::AddGroup(const std::string&) {}
void Hdf5Writer::AddFloats(const std::string&, const Shape&, std::span<const float>) {}
void Hdf5Writer::AddInteger(const std::string&, int32_t) {}
void Hdf5Writer::AddText(const std::string&, const std::string&) {}
PreparedFile Hdf5Writer::Prepare() { return PreparedFile(path_, ""); }

#endif

}  // namespace poseidon
