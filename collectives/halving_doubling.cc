#include "collectives/halving_doubling.h"

#include <algorithm>
#include <bit>

namespace poseidon {
namespace {

// Workers first ... first + 2^levels - 1 of a group.
struct Block {
  int first = 0;
  int levels = 0;
  int size() const { return 1 << levels; }
};

// One block for each bit of the group's size, the largest first.
std::vector<Block> BinaryBlocks(int workers) {
  std::vector<Block> blocks;
  int first = 0;
  for (int levels = std::bit_width(static_cast<unsigned>(workers)) - 1; levels >= 0; --levels) {
    if ((workers >> levels & 1) == 0) continue;
    blocks.push_back({first, levels});
    first += 1 << levels;
  }
  return blocks;
}

// Which of a block's pieces its worker `place` owns: the first step, between neighbours, decides
// about halves of the range, so it is the piece's highest bit. The same function finds the owner.
int OwnedPiece(const Block& block, int place) {
  int piece = 0;
  for (int level = 0; level < block.levels; ++level) {
    piece = piece << 1 | (place >> level & 1);
  }
  return piece;
}

// One worker's view of its blocks.
struct Place {
  explicit Place(const Group& group) : blocks(BinaryBlocks(group.size())) {
    while (group.self >= blocks[block].first + blocks[block].size()) ++block;
    place = group.self - blocks[block].first;
    piece = OwnedPiece(mine(), place);
  }
  const Block& mine() const { return blocks[block]; }
  // In the largest block, whose workers own the sums.
  bool owns() const { return block == 0; }

  std::vector<Block> blocks;
  int block = 0;  // which of them has the worker
  int place = 0;  // in the block
  int piece = 0;  // that it owns, of block size pieces
};

// What the worker has after `level` steps of halving (or before the last `level` of doubling).
Range Held(Range range, const Place& me, int level) {
  return Piece(range, 1 << level, me.piece >> (me.mine().levels - level));
}

// What its partner of step `level` has then.
Range HeldByPartner(Range range, const Place& me, int level) {
  return Piece(range, 2 << level, me.piece >> (me.mine().levels - level - 1) ^ 1);
}

int Partner(const Group& group, const Place& me, int level) {
  return group.ranks[me.mine().first + (me.place ^ 1 << level)];
}

// The worker in the next smaller block whose piece has one's own in it.
int BelowMe(const Group& group, const Place& me) {
  const Block& below = me.blocks[me.block + 1];
  const int piece = me.piece >> (me.mine().levels - below.levels);
  return group.ranks[below.first + OwnedPiece(below, piece)];
}

// The same operation on each piece of the next larger block that is in one's own.
Schedule WithBlockAbove(Operation::Kind kind, Range range, const Group& group, const Place& me,
                        int step) {
  const Block& above = me.blocks[me.block - 1];
  const int count = 1 << (above.levels - me.mine().levels);
  Schedule schedule;
  for (int piece = me.piece * count; piece < (me.piece + 1) * count; ++piece) {
    Append(schedule, {kind, group.ranks[above.first + OwnedPiece(above, piece)], step,
                      Piece(range, above.size(), piece)});
  }
  return schedule;
}

}  // namespace

int HalvingDoublingSteps(int workers) { return std::bit_width(static_cast<unsigned>(workers)) - 1; }

int HalvingDoublingStepNumbers(int workers) { return HalvingDoublingSteps(workers) + 1; }

ReduceScatter HalvingReduceScatter(Range range, const Group& group, int first_step) {
  const Place me(group);
  const Range owned = Held(range, me, me.mine().levels);
  ReduceScatter result;
  Schedule& schedule = result.schedule;
  for (int level = 0; level < me.mine().levels; ++level) {
    const int partner = Partner(group, me, level);
    const int step = first_step + level;
    Append(schedule, {Operation::Kind::kSend, partner, step, HeldByPartner(range, me, level)});
    Append(schedule, {Operation::Kind::kAdd, partner, step, Held(range, me, level + 1)});
  }
  const int between_blocks = first_step + HalvingDoublingSteps(group.size());
  if (me.mine().first + me.mine().size() < group.size()) {
    Append(schedule, {Operation::Kind::kAdd, BelowMe(group, me), between_blocks, owned});
  }
  if (me.owns()) {
    result.owned = owned;
  } else {
    result.owned = {owned.offset, 0};
    Append(schedule, WithBlockAbove(Operation::Kind::kSend, range, group, me, between_blocks));
  }
  return result;
}

Schedule DoublingAllGather(Range range, const Group& group, int first_step) {
  const Place me(group);
  Schedule schedule;
  if (!me.owns()) {
    Append(schedule, WithBlockAbove(Operation::Kind::kCopy, range, group, me, first_step));
  }
  if (me.mine().first + me.mine().size() < group.size()) {
    const Range owned = Held(range, me, me.mine().levels);
    Append(schedule, {Operation::Kind::kSend, BelowMe(group, me), first_step, owned});
  }
  for (int level = me.mine().levels - 1; level >= 0; --level) {
    const int partner = Partner(group, me, level);
    const int step = first_step + 1 + level;
    Append(schedule, {Operation::Kind::kSend, partner, step, Held(range, me, level + 1)});
    Append(schedule, {Operation::Kind::kCopy, partner, step, HeldByPartner(range, me, level)});
  }
  return schedule;
}

Schedule DoublingAllGather(const std::vector<Range>& blocks, const Group& group) {
  const int workers = group.size();
  // Blocks first ... first + count - 1 (modulo workers), in as few messages as memory allows.
  const auto append = [&](Schedule& schedule, Operation::Kind kind, int peer, int first,
                          int count) {
    for (int i = 0; i < count;) {
      const int step = (first + i) % workers;  // tells the messages to this peer apart
      Range range = blocks[step];
      for (++i; i < count; ++i) {
        const Range& block = blocks[(first + i) % workers];
        if (block.offset != range.offset + range.size) break;
        range.size += block.size;
      }
      Append(schedule, {kind, group.ranks[peer], step, range});
    }
  };
  Schedule schedule;
  for (int distance = 1; distance < workers; distance *= 2) {
    const int count = std::min(distance, workers - distance);
    const int below = (group.self - distance + workers) % workers;
    const int above = (group.self + distance) % workers;
    append(schedule, Operation::Kind::kSend, below, group.self, count);
    append(schedule, Operation::Kind::kCopy, above, above, count);
  }
  return schedule;
}

}  // namespace poseidon
