#include "transport/work_queue.h"

namespace poseidon {
namespace {

ArithmeticAmount Share(const SlicedArithmetic& part, int64_t slices) {
  const double share = static_cast<double>(slices) / static_cast<double>(part.slices);
  return {part.amount.updated * share, part.amount.operations * share};
}

}  // namespace

void WorkQueue::Add(std::vector<Work> works) {
  for (Work& work : works) {
    const int64_t priority = work.priority;
    const auto added = waiting_.try_emplace({priority, order_++}, Progress{std::move(work)}).first;
    SkipParts(added->second);
  }
}

void WorkQueue::SkipParts(Progress& progress) {
  const std::vector<SlicedArithmetic>& parts = progress.work.parts;
  while (progress.part < parts.size() && progress.slice >= parts[progress.part].slices) {
    ++progress.part;
    progress.slice = 0;
  }
}

ArithmeticAmount WorkQueue::NextSlice() const {
  const Progress& next = waiting_.begin()->second;
  const std::vector<SlicedArithmetic>& parts = next.work.parts;
  return next.part < parts.size() ? Share(parts[next.part], 1) : ArithmeticAmount();
}

ArithmeticAmount WorkQueue::Left() const {
  const Progress& next = waiting_.begin()->second;
  ArithmeticAmount left;
  for (size_t p = next.part; p < next.work.parts.size(); ++p) {
    const SlicedArithmetic& part = next.work.parts[p];
    if (part.slices == 0) continue;
    const ArithmeticAmount share = Share(part, part.slices - (p == next.part ? next.slice : 0));
    left.updated += share.updated;
    left.operations += share.operations;
  }
  return left;
}

std::function<void(Outbox&)> WorkQueue::RunSlice() {
  const auto first = waiting_.begin();
  Progress& next = first->second;
  const std::vector<SlicedArithmetic>& parts = next.work.parts;
  if (next.part < parts.size()) {
    if (parts[next.part].run) parts[next.part].run(next.slice);
    ++next.slice;
    SkipParts(next);
  }
  if (next.part < parts.size()) return {};
  std::function<void(Outbox&)> done = std::move(next.work.done);
  waiting_.erase(first);
  return done;
}

}  // namespace poseidon
