#include "collectives/ring.h"

namespace poseidon {
namespace {

int Next(const Group& group) { return group.RankAt((group.self + 1) % group.size); }
int Previous(const Group& group) {
  return group.RankAt((group.self + group.size - 1) % group.size);
}

// What the worker sends in its step `step`, where it began with the piece at its own index plus
// `shift`; it takes the piece before that.
int PieceSent(const Group& group, int shift, int step) {
  return (group.self + shift - step + group.size) % group.size;
}

int PieceTaken(const Group& group, int shift, int step) {
  return (PieceSent(group, shift, step) + group.size - 1) % group.size;
}

}  // namespace

Operation RingOperation(const Phase& phase, int index) {
  const Group& group = phase.group;
  const int step = index / 2;
  const int shift = phase.gather ? 1 : 0;
  if (index % 2 == 0) {
    return {Operation::Kind::kSend, Next(group), phase.first_step + step,
            Piece(phase.range, group.size, PieceSent(group, shift, step))};
  }
  return {phase.gather ? Operation::Kind::kCopy : Operation::Kind::kAdd, Previous(group),
          phase.first_step + step, Piece(phase.range, group.size, PieceTaken(group, shift, step))};
}

std::optional<int> RingAwaiting(const Phase& phase, int peer, int step) {
  const int own = step - phase.first_step;
  if (own < 0 || own >= RingSteps(phase.group.size) || peer != Previous(phase.group)) {
    return std::nullopt;
  }
  return 2 * own + 1;
}

Range RingOwned(const Phase& phase) {
  const Group& group = phase.group;
  return Piece(phase.range, group.size, (group.self + 1) % group.size);
}

Schedule RingAllGather(const std::vector<Range>& blocks, const Group& group) {
  Schedule schedule;
  for (int i = 0; i < RingSteps(group.size); ++i) {
    Append(schedule, {Operation::Kind::kSend, Next(group), i, blocks[PieceSent(group, 0, i)]});
    Append(schedule, {Operation::Kind::kCopy, Previous(group), i, blocks[PieceTaken(group, 0, i)]});
  }
  return schedule;
}

}  // namespace poseidon
