#include "collectives/halving_doubling.h"

#include <algorithm>
#include <bit>

#include "core/message_limit.h"

namespace poseidon {
namespace {

using Kind = Operation::Kind;

// Workers first ... first + 2^levels - 1 of a group. levels -1: there is no such block.
struct Block {
  int first = 0;
  int levels = -1;
  bool exists() const { return levels >= 0; }
  int size() const { return 1 << levels; }
  bool Has(int index) const { return exists() && index >= first && index < first + size(); }
};

// The block behind `block`, which is the next smaller one: one for each bit of the group's size,
// the largest first.
Block Below(const Block& block, int workers) {
  const int first = block.first + block.size();
  return {first, HalvingDoublingSteps(workers - first)};
}

// Which of a block's pieces its worker `place` owns: the first step, between neighbors, decides
// about halves of the range, so it is the piece's highest bit. The same function finds the owner.
int OwnedPiece(const Block& block, int place) {
  int piece = 0;
  for (int level = 0; level < block.levels; ++level) {
    piece = piece << 1 | (place >> level & 1);
  }
  return piece;
}

// One worker's view of its blocks. A phase's operations are first the exchanges within its block,
// two a level, then what comes from the block below, then what goes to the block above, a piece
// each; to gather backwards.
struct Place {
  explicit Place(const Group& members) : group(members) {
    mine = {0, HalvingDoublingSteps(group.size)};
    while (!mine.Has(group.self)) {
      above = mine;
      mine = Below(mine, group.size);
    }
    below = Below(mine, group.size);
    place = group.self - mine.first;
    piece = OwnedPiece(mine, place);
  }

  int exchanges() const { return 2 * mine.levels; }
  int from_below() const { return below.exists() ? 1 : 0; }
  int to_above() const { return above.exists() ? 1 << (above.levels - mine.levels) : 0; }
  int operations() const { return exchanges() + from_below() + to_above(); }

  // What the worker has after `level` steps of halving (or before the last `level` of doubling).
  Range Held(Range range, int level) const {
    return Piece(range, 1 << level, piece >> (mine.levels - level));
  }
  // What its partner of step `level` has then.
  Range HeldByPartner(Range range, int level) const {
    return Piece(range, 2 << level, piece >> (mine.levels - level - 1) ^ 1);
  }
  Range owned(Range range) const { return Held(range, mine.levels); }
  int Partner(int level) const { return group.RankAt(mine.first + (place ^ 1 << level)); }
  // The worker in the next smaller block whose piece has one's own in it.
  int BelowMe() const {
    return group.RankAt(below.first + OwnedPiece(below, piece >> (mine.levels - below.levels)));
  }
  // Of the pieces of the next larger block, the `i`th that is in one's own.
  int PieceAbove(int i) const { return piece * to_above() + i; }
  int OwnerAbove(int piece_above) const {
    return group.RankAt(above.first + OwnedPiece(above, piece_above));
  }
  // Which of them the worker of rank `peer` owns; -1: none.
  int IndexAbove(int peer) const {
    const int index = group.IndexOf(peer);
    if (!above.Has(index)) return -1;
    const int i = OwnedPiece(above, index - above.first) - PieceAbove(0);
    return i >= 0 && i < to_above() ? i : -1;
  }

  const Group& group;
  Block mine;
  Block above;    // the next larger
  Block below;    // the next smaller
  int place = 0;  // in its block
  int piece = 0;  // that it owns, of block size pieces
};

Operation ReduceOperation(const Phase& phase, const Place& me, int index) {
  const Range& range = phase.range;
  if (index < me.exchanges()) {
    const int level = index / 2;
    const int partner = me.Partner(level);
    const int step = phase.first_step + level;
    if (index % 2 == 0) return {Kind::kSend, partner, step, me.HeldByPartner(range, level)};
    return {Kind::kAdd, partner, step, me.Held(range, level + 1)};
  }
  const int between_blocks = phase.first_step + HalvingDoublingSteps(phase.group.size);
  index -= me.exchanges();
  if (index < me.from_below()) {
    return {Kind::kAdd, me.BelowMe(), between_blocks, me.owned(range)};
  }
  const int piece = me.PieceAbove(index - me.from_below());
  return {Kind::kSend, me.OwnerAbove(piece), between_blocks, Piece(range, me.above.size(), piece)};
}

Operation GatherOperation(const Phase& phase, const Place& me, int index) {
  const Range& range = phase.range;
  if (index < me.to_above()) {
    const int piece = me.PieceAbove(index);
    return {Kind::kCopy, me.OwnerAbove(piece), phase.first_step,
            Piece(range, me.above.size(), piece)};
  }
  index -= me.to_above();
  if (index < me.from_below()) {
    return {Kind::kSend, me.BelowMe(), phase.first_step, me.owned(range)};
  }
  index -= me.from_below();
  const int level = me.mine.levels - 1 - index / 2;
  const int partner = me.Partner(level);
  const int step = phase.first_step + 1 + level;
  if (index % 2 == 0) return {Kind::kSend, partner, step, me.Held(range, level + 1)};
  return {Kind::kCopy, partner, step, me.HeldByPartner(range, level)};
}

}  // namespace

int HalvingDoublingSteps(int workers) {
  return static_cast<int>(std::bit_width(static_cast<unsigned>(workers))) - 1;
}

int HalvingDoublingStepNumbers(int workers) { return HalvingDoublingSteps(workers) + 1; }

int HalvingDoublingOperations(const Group& group) { return Place(group).operations(); }

Operation HalvingDoublingOperation(const Phase& phase, int index) {
  const Place me(phase.group);
  return phase.gather ? GatherOperation(phase, me, index) : ReduceOperation(phase, me, index);
}

std::optional<int> HalvingDoublingAwaiting(const Phase& phase, int peer, int step) {
  const Place me(phase.group);
  const int own = step - phase.first_step;
  const int exchange = phase.gather ? own - 1 : own;
  if (exchange >= 0 && exchange < me.mine.levels) {
    if (peer != me.Partner(exchange)) return std::nullopt;
    if (!phase.gather) return 2 * exchange + 1;
    return me.to_above() + me.from_below() + 2 * (me.mine.levels - 1 - exchange) + 1;
  }
  if (phase.gather) {
    const int above = own == 0 ? me.IndexAbove(peer) : -1;
    return above < 0 ? std::nullopt : std::optional(above);
  }
  const bool from_below =
      own == HalvingDoublingSteps(phase.group.size) && me.below.exists() && peer == me.BelowMe();
  return from_below ? std::optional(me.exchanges()) : std::nullopt;
}

Range HalvingDoublingOwned(const Phase& phase) {
  const Place me(phase.group);
  const Range owned = me.owned(phase.range);
  return me.above.exists() ? Range{owned.offset, 0} : owned;
}

Schedule DoublingAllGather(const std::vector<Range>& blocks, const Group& group) {
  const int workers = group.size;
  constexpr int64_t kMost = kMostBodyBytes / static_cast<int64_t>(sizeof(float));
  // Blocks first ... first + count - 1 (modulo workers), in as few messages as memory and the limit
  // of a message allow: both ends join the same ones.
  const auto append = [&](Schedule& schedule, Operation::Kind kind, int peer, int first,
                          int count) {
    for (int i = 0; i < count;) {
      const int step = (first + i) % workers;  // tells the messages to this peer apart
      Range range = blocks[step];
      for (++i; i < count; ++i) {
        const Range& block = blocks[(first + i) % workers];
        if (block.offset != range.offset + range.size || range.size + block.size > kMost) break;
        range.size += block.size;
      }
      Append(schedule, {kind, group.RankAt(peer), step, range});
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
