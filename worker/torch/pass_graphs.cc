#include "worker/torch/pass_graphs.h"

#include <ATen/ops/empty_like.h>
#include <glog/logging.h>

#include <algorithm>
#include <span>
#include <utility>

namespace poseidon {
namespace {

bool SameMemory(std::span<const float> a, std::span<const float> b) {
  return a.data() == b.data() && a.size() == b.size();
}

bool SameMemory(const GradientBuffers& a, const GradientBuffers& b) {
  return SameMemory(a.dense, b.dense) && SameMemory(a.u, b.u) && SameMemory(a.v, b.v);
}

}  // namespace

PassGraphs::PassGraphs(StreamGraphs& graphs, std::vector<NetValue>& values, std::vector<Step> steps,
                       std::vector<StepCall> calls, Compute compute)
    : values_(values),
      steps_(std::move(steps)),
      calls_(std::move(calls)),
      compute_(std::move(compute)),
      made_by_graphs_(values.size()),
      used_by_graphs_(values.size()) {
  for (const Step& step : steps_) {
    if (!step.captured) continue;
    for (const int bottom : step.bottoms) used_by_graphs_[bottom] = true;
    for (const int top : step.tops) used_by_graphs_[top] = made_by_graphs_[top] = true;
  }
  for (size_t call = 0; call < calls_.size(); call = pieces_.back().end) {
    pieces_.push_back(IsCaptured(calls_[call]) ? Capture(graphs, call) : Between(call));
  }
}

bool PassGraphs::IsApart(size_t call) const {
  const StepCall& before = calls_[call - 1];
  const StepCall& behind = calls_[call];
  if (!before.backward && behind.backward) return true;  // the losses are on their way to the host
  return steps_[before.backward ? before.step : behind.step].pause;
}

PassGraphs::Piece PassGraphs::Capture(StreamGraphs& graphs, size_t begin) {
  Piece piece;
  piece.end = begin + 1;
  while (piece.end < calls_.size() && IsCaptured(calls_[piece.end]) && !IsApart(piece.end)) {
    ++piece.end;
  }
  piece.graph = graphs.Capture([&] {
    for (size_t call = begin; call < piece.end; ++call) compute_(calls_[call]);
  });
  return piece;
}

PassGraphs::Piece PassGraphs::Between(size_t call) {
  Piece piece;
  piece.end = call + 1;
  KeepReads(calls_[call], piece);
  compute_(calls_[call]);
  MakeCopies(calls_[call], piece);
  return piece;
}

void PassGraphs::KeepReads(const StepCall& call, Piece& piece) const {
  const Step& step = steps_[call.step];
  for (const std::vector<int>* const numbers : {&step.bottoms, &step.tops}) {
    for (const int value : *numbers) {
      if (made_by_graphs_[value]) piece.read_data.push_back(value);
      if (call.backward && used_by_graphs_[value]) piece.read_gradients.push_back(value);
    }
  }
  for (const int value : piece.read_data) piece.reads.push_back(values_[value].data);
  for (const int value : piece.read_gradients) piece.reads.push_back(values_[value].gradient);
}

at::Tensor& PassGraphs::Made(const StepCall& call, int value) {
  return call.backward ? values_[value].gradient : values_[value].data;
}

void PassGraphs::MakeCopies(const StepCall& call, Piece& piece) {
  const Step& step = steps_[call.step];
  for (const int value : call.backward ? step.bottoms : step.tops) {
    at::Tensor& made = Made(call, value);
    if (!used_by_graphs_[value] || !made.defined()) continue;
    piece.made.push_back(value);
    piece.copies.push_back(at::empty_like(made).copy_(made));
    made = piece.copies.back();
  }
}

void PassGraphs::Do(const StepCall& call) {
  CHECK_LT(call_, calls_.size());
  const StepCall& expected = calls_[call_++];
  CHECK(call.step == expected.step && call.backward == expected.backward &&
        SameMemory(call.target, expected.target))
      << "another pass than what was captured";
  Piece& piece = pieces_[piece_];
  if (piece.graph == nullptr) {
    DoBetween(call, piece);
  } else if (call_ == piece.end) {
    piece.graph->Launch();
  }
  if (call_ == piece.end) ++piece_;
}

void PassGraphs::DoBetween(const StepCall& call, Piece& piece) {
  auto read = piece.reads.begin();
  for (const int value : piece.read_data) values_[value].data = *read++;
  for (const int value : piece.read_gradients) values_[value].gradient = *read++;
  compute_(call);
  for (size_t i = 0; i < piece.made.size(); ++i) {
    at::Tensor& made = Made(call, piece.made[i]);
    piece.copies[i].copy_(made);
    made = piece.copies[i];
  }
}

int PassGraphs::graphs() const {
  return static_cast<int>(std::count_if(pieces_.begin(), pieces_.end(),
                                        [](const Piece& piece) { return piece.graph != nullptr; }));
}

}  // namespace poseidon
