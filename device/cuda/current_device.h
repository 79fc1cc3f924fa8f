// While it lives, CUDA's calls of this thread that make something or launch a kernel are for the
// GPU number `index`, and a null stream is its default stream. Throws Error if CUDA refuses.
#pragma once

#include <new>

namespace poseidon {

class CurrentCudaDevice {
 public:
  explicit CurrentCudaDevice(int index);
  // Where nothing may be thrown, as in a deleter: if CUDA refuses the device is not current.
  CurrentCudaDevice(int index, std::nothrow_t nothrow) noexcept;
  ~CurrentCudaDevice();
  CurrentCudaDevice(const CurrentCudaDevice&) = delete;
  CurrentCudaDevice& operator=(const CurrentCudaDevice&) = delete;

 private:
  int index_;
  int before_ = 0;
};

}  // namespace poseidon
