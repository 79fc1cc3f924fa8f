// What the benchmarks on GPUs share.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "device/cuda/check.h"

namespace poseidon {

// Seconds of each repetition, ascending.
struct Timings {
  std::vector<double> seconds;

  double min() const { return seconds.front(); }
  double median() const { return seconds[seconds.size() / 2]; }
  double p99() const { return seconds[seconds.size() * 99 / 100]; }
};

// A hundred, so that there is a 99th percentile; and before them some for clocks and page tables.
constexpr int kRepetitions = 100;
constexpr int kWarmUp = 10;

// Of what `work` puts in the stream, by the device's own clock.
inline Timings TimeInStream(cudaStream_t stream, const std::function<void()>& work) {
  cudaEvent_t begin = nullptr, end = nullptr;
  CheckCuda(cudaEventCreate(&begin), "make an event");
  CheckCuda(cudaEventCreate(&end), "make an event");
  Timings timings;
  for (int i = 0; i < kWarmUp + kRepetitions; ++i) {
    CheckCuda(cudaEventRecord(begin, stream), "record an event");
    work();
    CheckCuda(cudaEventRecord(end, stream), "record an event");
    CheckCuda(cudaEventSynchronize(end), "do its work");
    float milliseconds = 0;
    CheckCuda(cudaEventElapsedTime(&milliseconds, begin, end), "tell the time");
    if (i >= kWarmUp) timings.seconds.push_back(milliseconds / 1e3);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::sort(timings.seconds.begin(), timings.seconds.end());
  return timings;
}

// A line of the table: GB/s (10^9) of the fastest, the median and the 99th percentile repetition,
// and the median's ratio to `ceiling`, in bytes a second.
inline void PrintRow(const char* name, double bytes, const Timings& timings, double ceiling) {
  std::printf("%-34s %9.1f %9.1f %9.1f %9.2f\n", name, bytes / timings.min() / 1e9,
              bytes / timings.median() / 1e9, bytes / timings.p99() / 1e9,
              bytes / timings.median() / ceiling);
}

inline void PrintHeading(const char* what) {
  std::printf("\n%-34s %9s %9s %9s %9s\n", what, "fastest", "median", "p99", "ratio");
}

}  // namespace poseidon
