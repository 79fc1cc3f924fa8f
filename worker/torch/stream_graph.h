// StreamGraph: work that libtorch puts in a GPU's stream, taken down once as a CUDA graph, so that
// the device can be asked for all of it by one call, again and again. It reads and writes the same
// memory each time. Asking for an operator costs a thread of the host some ten microseconds, for a
// graph of many as much as for one of one.
//
//   const std::unique_ptr<StreamGraphs> graphs = MakeStreamGraphs(device);
//   graphs->Begin();
//   const auto sum = graphs->Capture([&] { a.add_(b); });  // nothing is added
//   sum->Launch();                                         // now it is
//
// Thread safety: one thread, that of the engine.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>

namespace poseidon {

class StreamGraph {
 public:
  virtual ~StreamGraph() = default;
  // Puts the work in the device's current stream. Throws c10::Error if CUDA can't.
  virtual void Launch() = 0;
};

// Makes graphs for one device. Those between two Begins are launched in the order in which they
// were captured: what is freed in one is memory for those behind it. One for an engine's life, as
// libtorch keeps memory for the stream that it captures in.
class StreamGraphs {
 public:
  virtual ~StreamGraphs() = default;
  // Gives memory back that libtorch keeps for later, as what is captured next needs its own.
  virtual void Begin() = 0;
  // Calls `work`, which only puts work in the current stream, where none of it is done. Tensors
  // that it makes have memory, and nothing in it before a launch. Throws what `work` throws, and
  // c10::Error if it did what can't be captured; then there is no graph, and all else is as before.
  virtual std::unique_ptr<StreamGraph> Capture(const std::function<void()>& work) = 0;
};

// Gives memory back that libtorch keeps for later, on all GPUs.
void EmptyCache();

// Null for a device that is no GPU, and where this build's libtorch has no CUDA.
std::unique_ptr<StreamGraphs> MakeStreamGraphs(c10::Device device);

}  // namespace poseidon
