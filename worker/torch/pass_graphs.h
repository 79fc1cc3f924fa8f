// PassGraphs launches a forward and backward pass of a net as a few StreamGraphs, each of many
// steps. Between graphs are the steps that can't be captured: those that read a batch, draw random
// numbers or compute a loss. They are done as they always are.
//
//   PassGraphs graphs(of_stream, values, steps, calls, compute);
//   for (;;) {
//     graphs.Begin();
//     for (const StepCall& call : calls) graphs.Do(call);
//   }
//
// All is captured at once, before a pass, by computing each step's part without having the device
// do it. Then a pass's calls are followed one by one, and a graph is launched with the last of its
// calls. A graph ends where others put work in the stream, so that their work comes where it came
// without graphs.
//
// A graph reads and writes always the same memory. What a step between has made is therefore copied
// to memory that stays, and what it reads of a graph's is kept for it.
//
// Thread safety: one thread, that of the net.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "core/arithmetic/gradient_buffers.h"
#include "worker/torch/layers/torch_layer.h"
#include "worker/torch/stream_graph.h"

namespace poseidon {

// A top of a layer, and the gradient of the loss there, while the backward pass is between its
// readers and its maker.
struct NetValue {
  bool needs_gradient = false;
  at::Tensor data;
  at::Tensor gradient;
};

// A step's part of a pass.
struct StepCall {
  int step = 0;
  bool backward = false;
  GradientBuffers target;  // of the backward pass
};

class PassGraphs {
 public:
  // A step as far as it matters here: the indices of its values, whether each pass puts the same
  // work of it in the stream and does nothing else, and whether others put work there before its
  // forward and behind its backward pass.
  struct Step {
    std::vector<int> bottoms;
    std::vector<int> tops;
    bool captured = false;
    bool pause = false;
  };
  using Compute = std::function<void(const StepCall& call)>;

  // `calls` are those of each pass to come, in their order. `compute` does a step's part on
  // `values`; here it is called for all of them, of which those between are done by the device, of
  // numbers that mean nothing. Throws what `compute` and StreamGraphs throw; then the values are
  // those of no pass. What is pointed to outlives this.
  PassGraphs(StreamGraphs& graphs, std::vector<NetValue>& values, std::vector<Step> steps,
             std::vector<StepCall> calls, Compute compute);

  // A pass begins, also if the one before has not come to its end.
  void Begin() { call_ = piece_ = 0; }
  // The pass's next call, with the target that it had when all was captured.
  void Do(const StepCall& call);

  // For people.
  int graphs() const;
  int steps_between() const { return static_cast<int>(pieces_.size()) - graphs(); }

 private:
  // A graph of some calls, or a call between.
  struct Piece {
    size_t end = 0;                      // the number of the call behind it
    std::unique_ptr<StreamGraph> graph;  // null: a call between
    // What graphs have made and the call between may read: indices of values, and the tensors.
    std::vector<int> read_data;
    std::vector<int> read_gradients;
    Tensors reads;
    // What the call makes and graphs read: memory that stays.
    std::vector<int> made;
    Tensors copies;
  };

  bool IsCaptured(const StepCall& call) const { return steps_[call.step].captured; }
  // Whether others put work in the stream between this call and the one before it.
  bool IsApart(size_t call) const;
  Piece Capture(StreamGraphs& graphs, size_t begin);
  Piece Between(size_t call);
  void KeepReads(const StepCall& call, Piece& piece) const;
  void MakeCopies(const StepCall& call, Piece& piece);
  void DoBetween(const StepCall& call, Piece& piece);
  at::Tensor& Made(const StepCall& call, int value);

  std::vector<NetValue>& values_;
  std::vector<Step> steps_;
  std::vector<StepCall> calls_;
  Compute compute_;
  // By value: whether graphs make it, and whether they make or read it.
  std::vector<bool> made_by_graphs_;
  std::vector<bool> used_by_graphs_;
  std::vector<Piece> pieces_;
  size_t call_ = 0;   // the next
  size_t piece_ = 0;  // that it is of
};

}  // namespace poseidon
