#include "caffe_adapter/files/hdf5_file.h"

#include "core/error.h"
#include "core/files/regular_file.h"

#if POSEIDON_HDF5
#include <charconv>
#include <string_view>

#include "caffe_adapter/files/hdf5_library.h"
#include "core/paths/passing_error.h"
#endif

namespace poseidon {

#if POSEIDON_HDF5

namespace {

// The system's number of why the library's last call in this thread could not read; 0: it could.
// Only what its driver writes for people has it: "file read failed: ..., errno = 5, ...".
int LastReadError() {
  int error = 0;
  const auto look = [](unsigned, const H5E_error2_t* entry, void* found) -> herr_t {
    constexpr std::string_view kMark = "errno = ";
    const std::string_view text = entry->desc == nullptr ? "" : entry->desc;
    const size_t mark = text.rfind(kMark);  // the file's name stands before it
    if (mark == std::string_view::npos) return 0;
    const char* const number = text.data() + mark + kMark.size();
    std::from_chars(number, text.data() + text.size(), *static_cast<int*>(found));
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, look, &error);
  return error;
}

// For a call that has failed, before the next one: what could not be read for a moment says nothing
// of the file, and is Error of kFailure (core/files/regular_file.h).
void ThrowIfItMayPass(const std::string& path) {
  const int error = LastReadError();
  if (MayPass(error)) ThrowReadError(path, error, ExitCode::kDataError);
}

[[noreturn]] void Fail(const std::string& path, const std::string& dataset,
                       const std::string& message) {
  ThrowIfItMayPass(path);
  throw DataError(path + ": dataset \"" + dataset + "\": " + message);
}

hid_t OpenDataset(int64_t file, const std::string& path, const std::string& name) {
  const hid_t dataset = H5Dopen2(file, name.c_str(), H5P_DEFAULT);
  if (dataset < 0) {
    ThrowIfItMayPass(path);
    throw DataError(path + ": has no dataset \"" + name + "\"");
  }
  return dataset;
}

Shape Extents(const Hdf5Handle& dataset, const std::string& path, const std::string& name) {
  const Hdf5Handle type(H5Dget_type(dataset.id()), H5Tclose);
  const H5T_class_t kind = type.ok() ? H5Tget_class(type.id()) : H5T_NO_CLASS;
  if (kind != H5T_FLOAT && kind != H5T_INTEGER) Fail(path, name, "has no numbers");
  const Hdf5Handle space(H5Dget_space(dataset.id()), H5Sclose);
  const int axes = space.ok() ? H5Sget_simple_extent_ndims(space.id()) : -1;
  if (axes < 0) Fail(path, name, "has no extents");
  std::vector<hsize_t> extents(static_cast<size_t>(axes));
  if (axes > 0) H5Sget_simple_extent_dims(space.id(), extents.data(), nullptr);
  // Caffe counts a blob's values in an int.
  constexpr hsize_t kMaxCount = INT32_MAX;
  hsize_t count = 1;
  for (const hsize_t extent : extents) {
    if (extent == 0 || extent > kMaxCount / count) {
      Fail(path, name, "expected extents of at least 1 and at most 2^31 - 1 values");
    }
    count *= extent;
  }
  return {extents.begin(), extents.end()};
}

// A file that is only read needs no lock, which some file systems can't give (NFS without a lock
// service). Before 1.10.7 the library knows the variable HDF5_USE_FILE_LOCKING only, as 1.12.0
// does.
void LockNoFile(const Hdf5Handle& access) {
#if H5_VERSION_GE(1, 10, 7) && !(H5_VERS_MAJOR == 1 && H5_VERS_MINOR == 12 && H5_VERS_RELEASE == 0)
  H5Pset_file_locking(access.id(), /*use_file_locking=*/0, /*ignore_when_disabled=*/1);
#else
  static_cast<void>(access);
#endif
}

}  // namespace

bool HasHdf5() { return true; }

Hdf5File::Hdf5File(const std::string& path) : path_(path), file_(-1) {
  CheckRegularFile(path, ExitCode::kDataError);
  const Hdf5Library library;
  const Hdf5Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  LockNoFile(access);
  file_ = H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.id());
  if (file_ >= 0) return;
  ThrowIfItMayPass(path);
  throw DataError(path + ": is no HDF5 file or is truncated or corrupt");
}

Hdf5File::~Hdf5File() {
  const Hdf5Library library;
  H5Fclose(file_);
}

Shape Hdf5File::ShapeOf(const std::string& name) const {
  const Hdf5Library library;
  const Hdf5Handle dataset(OpenDataset(file_, path_, name), H5Dclose);
  return Extents(dataset, path_, name);
}

std::vector<float> Hdf5File::Read(const std::string& name) const {
  const Hdf5Library library;
  const Hdf5Handle dataset(OpenDataset(file_, path_, name), H5Dclose);
  std::vector<float> values(static_cast<size_t>(Count(Extents(dataset, path_, name))));
  if (H5Dread(dataset.id(), H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) {
    Fail(path_, name, "can't be read; the file is truncated or corrupt");
  }
  return values;
}

int64_t Hdf5File::ReadInteger(const std::string& name) const {
  const Hdf5Library library;
  const Hdf5Handle dataset(OpenDataset(file_, path_, name), H5Dclose);
  if (Count(Extents(dataset, path_, name)) != 1) Fail(path_, name, "is no single number");
  int64_t value = 0;
  if (H5Dread(dataset.id(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, &value) < 0) {
    Fail(path_, name, "can't be read; the file is truncated or corrupt");
  }
  return value;
}

bool Hdf5File::Has(const std::string& name) const {
  const Hdf5Library library;
  // Every group on the way has to be asked for by itself.
  for (size_t end = name.find('/');; end = name.find('/', end + 1)) {
    const std::string path = name.substr(0, end);
    const htri_t exists = H5Lexists(file_, path.c_str(), H5P_DEFAULT);
    if (exists < 0) ThrowIfItMayPass(path_);
    if (exists <= 0) return false;
    if (end == std::string::npos) return true;
  }
}

std::vector<std::string> Hdf5File::NamesIn(const std::string& name) const {
  std::vector<std::string> names;
  if (!Has(name)) return names;
  const Hdf5Library library;
  const Hdf5Handle group(H5Gopen2(file_, name.c_str(), H5P_DEFAULT), H5Gclose);
  const auto add = [](hid_t, const char* found, const H5L_info_t*, void* to) -> herr_t {
    static_cast<std::vector<std::string>*>(to)->emplace_back(found);
    return 0;
  };
  const bool read =
      group.ok() && H5Literate(group.id(), H5_INDEX_NAME, H5_ITER_INC, nullptr, add, &names) >= 0;
  if (!read) ThrowIfItMayPass(path_);
  return names;
}

std::string Hdf5File::ReadText(const std::string& name) const {
  const Hdf5Library library;
  const Hdf5Handle dataset(OpenDataset(file_, path_, name), H5Dclose);
  const Hdf5Handle type(H5Dget_type(dataset.id()), H5Tclose);
  if (!type.ok() || H5Tget_class(type.id()) != H5T_STRING || H5Tis_variable_str(type.id()) != 0) {
    Fail(path_, name, "is no text");
  }
  constexpr size_t kMost = 1 << 16;  // a path
  if (H5Tget_size(type.id()) > kMost) Fail(path_, name, "is too long");
  std::string text(H5Tget_size(type.id()), 0);
  if (H5Dread(dataset.id(), type.id(), H5S_ALL, H5S_ALL, H5P_DEFAULT, text.data()) < 0) {
    Fail(path_, name, "can't be read; the file is truncated or corrupt");
  }
  return text.c_str();  // without what pads it
}

#else

bool HasHdf5() { return false; }

Hdf5File::Hdf5File(const std::string& path) : path_(path), file_(-1) {
  throw DataError(path +
                  ": reading HDF5 needs its library, which this build lacks; install libhdf5-dev "
                  "and build again");
}

Hdf5File::~Hdf5File() = default;

Shape Hdf5File::ShapeOf(const std::string&) const { return {}; }

std::vector<float> Hdf5File::Read(const std::string&) const { return {}; }

int64_t Hdf5File::ReadInteger(const std::string&) const { return 0; }

bool Hdf5File::Has(const std::string&) const { return false; }

std::vector<std::string> Hdf5File::NamesIn(const std::string&) const { return {}; }

std::string Hdf5File::ReadText(const std::string&) const { return ""; }

#endif

}  // namespace poseidon
