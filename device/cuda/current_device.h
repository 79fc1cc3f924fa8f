// While it lives, CUDA's calls of this thread that make something or launch a kernel are for the
// GPU number `index`, and a null stream is its default stream. Throws Error if CUDA refuses.
#pragma once

namespace poseidon {

class CurrentCudaDevice {
 public:
  explicit CurrentCudaDevice(int index);
  ~CurrentCudaDevice();
  CurrentCudaDevice(const CurrentCudaDevice&) = delete;
  CurrentCudaDevice& operator=(const CurrentCudaDevice&) = delete;

 private:
  int index_;
  int before_ = 0;
};

}  // namespace poseidon
