#include "collectives/ring.h"

namespace poseidon {
namespace {

// P - 1 times round the ring: in step i the worker at index r sends pieces[r + shift - i] and takes
// pieces[r + shift - i - 1].
Schedule Turns(const std::vector<Range>& pieces, const Group& group, int shift,
               Operation::Kind taking, int first_step) {
  const int workers = group.size();
  const int next = group.ranks[(group.self + 1) % workers];
  const int previous = group.ranks[(group.self + workers - 1) % workers];
  Schedule schedule;
  for (int i = 0; i < RingSteps(workers); ++i) {
    const int sent = (group.self + shift - i + workers) % workers;
    const int taken = (sent + workers - 1) % workers;
    Append(schedule, {Operation::Kind::kSend, next, first_step + i, pieces[sent]});
    Append(schedule, {taking, previous, first_step + i, pieces[taken]});
  }
  return schedule;
}

std::vector<Range> AllPieces(Range range, int count) {
  std::vector<Range> pieces;
  for (int i = 0; i < count; ++i) pieces.push_back(Piece(range, count, i));
  return pieces;
}

}  // namespace

ReduceScatter RingReduceScatter(Range range, const Group& group, int first_step) {
  const std::vector<Range> pieces = AllPieces(range, group.size());
  return {Turns(pieces, group, 0, Operation::Kind::kAdd, first_step),
          pieces[(group.self + 1) % group.size()]};
}

Schedule RingAllGather(Range range, const Group& group, int first_step) {
  return Turns(AllPieces(range, group.size()), group, 1, Operation::Kind::kCopy, first_step);
}

Schedule RingAllGather(const std::vector<Range>& blocks, const Group& group) {
  return Turns(blocks, group, 0, Operation::Kind::kCopy, 0);
}

}  // namespace poseidon
