#include "worker/torch/stream_graph.h"

#if POSEIDON_TORCH_WITH_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <functional>
#include <mutex>
#endif

namespace poseidon {

#if POSEIDON_TORCH_WITH_CUDA
namespace {

// libtorch has one cache of memory for all devices of the process, and refuses to empty it while
// anything is captured; replicas on several devices capture in threads of their own. As the cache
// is the process's, so is this.
std::mutex& CacheMutex() {
  static std::mutex mutex;
  return mutex;
}

// libtorch warns of a graph of nothing, as that of a layer which only passes tensors on.
class NoWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

class CudaGraph : public StreamGraph {
 public:
  at::cuda::CUDAGraph& graph() { return graph_; }
  void Launch() override { graph_.replay(); }

 private:
  at::cuda::CUDAGraph graph_;
};

class CudaGraphs : public StreamGraphs {
 public:
  explicit CudaGraphs(c10::Device device)
      : device_(device.index()),
        pool_(at::cuda::graph_pool_handle()),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device_)) {}

  void Begin() override {
    EmptyCache();
    pool_ = at::cuda::graph_pool_handle();
  }

  std::unique_ptr<StreamGraph> Capture(const std::function<void()>& work) override {
    const std::lock_guard lock(CacheMutex());
    auto captured = std::make_unique<CudaGraph>();
    NoWarnings none;
    const c10::WarningUtils::WarningHandlerGuard quiet(&none);
    // What is captured is in no stream; CUDA's default one, where it will be, can't be written
    // down.
    const c10::cuda::CUDAStreamGuard guard(stream_);
    bool begun = false;
    try {
      // Other threads, which read data and copy it, may go on.
      captured->graph().capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
      begun = true;
      work();
      captured->graph().capture_end();
    } catch (...) {
      GiveUp(captured->graph(), begun);
      throw;
    }
    return captured;
  }

 private:
  // With older versions of libtorch a graph that CUDA refuses leaves the cache of memory as if it
  // were still captured, and its pool in use. PyTorch has mended that in two steps: capture_end
  // ends it by itself (its pull request 180395, of April 2026), and reset, which the destructor
  // calls, ends it where that did not, releases the pool, and may not find it released already
  // (190348, of July 2026). So here only who ends it releases it. Versions with the first step
  // alone, which are 2.13 by these dates and builds of others that were given it, leave the pool to
  // nobody: what a failed capture has reserved stays so while the process lives. No version's
  // number tells which steps a build has, and a pool that is released twice would end the process.
  // What fails here was not begun, or has ended; the failure to tell of is the first.
  void GiveUp(at::cuda::CUDAGraph& graph, bool begun) const {
    if (begun && Does([&] { graph.capture_end(); })) return;
    if (!begun) Does([&] { graph.reset(); });
    if (Does([&] { c10::cuda::CUDACachingAllocator::endAllocateToPool(device_, pool_); })) {
      Does([&] { c10::cuda::CUDACachingAllocator::releasePool(device_, pool_); });
    }
  }
  // Whether it does not fail.
  static bool Does(const std::function<void()>& what) {
    try {
      what();
      return true;
    } catch (const c10::Error&) {
      return false;
    }
  }

  c10::DeviceIndex device_;
  decltype(at::cuda::graph_pool_handle()) pool_;
  c10::cuda::CUDAStream stream_;
};

}  // namespace

void EmptyCache() {
  const std::lock_guard lock(CacheMutex());
  c10::cuda::CUDACachingAllocator::emptyCache();
}

std::unique_ptr<StreamGraphs> MakeStreamGraphs(c10::Device device) {
  return device.is_cuda() ? std::make_unique<CudaGraphs>(device) : nullptr;
}

#else

void EmptyCache() {}
std::unique_ptr<StreamGraphs> MakeStreamGraphs(c10::Device) { return nullptr; }

#endif

}  // namespace poseidon
