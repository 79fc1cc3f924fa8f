// What every use of the HDF5 library needs. Only for builds that have it.
#pragma once

#include <hdf5.h>

#include <mutex>

namespace poseidon {

// The library keeps state of its own and is not built for threads; and it prints errors unless told
// not to. One of these is alive during each call.
class Hdf5Library {
 public:
  Hdf5Library() : lock_(Mutex()) { H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr); }

 private:
  static std::mutex& Mutex() {
    static std::mutex mutex;
    return mutex;
  }
  std::lock_guard<std::mutex> lock_;
};

// A handle of the library, closed by its function.
class Hdf5Handle {
 public:
  Hdf5Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  ~Hdf5Handle() {
    if (id_ >= 0) close_(id_);
  }
  Hdf5Handle(const Hdf5Handle&) = delete;
  Hdf5Handle& operator=(const Hdf5Handle&) = delete;
  hid_t id() const { return id_; }
  bool ok() const { return id_ >= 0; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

}  // namespace poseidon
