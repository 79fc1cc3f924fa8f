// ProfilerRange: while it lives, what this thread does, and what it has devices do, stands under a
// name in NVIDIA's profilers (an NVTX range: Nsight Systems shows it above the thread, and again
// above the copies and kernels that were put in streams within it). Ranges nest.
//
// Without a profiler it costs a few nanoseconds, and nothing at all in a build without CUDA. Any
// thread; never throws.
#pragma once

namespace poseidon {

class ProfilerRange {
 public:
  // `name` is not looked at afterwards.
  explicit ProfilerRange(const char* name);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace poseidon
