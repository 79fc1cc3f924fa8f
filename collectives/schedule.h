// A schedule: what one worker sends, receives and adds, in which order, to reduce or gather a range
// of floats with the others. Made by pure functions, one file an algorithm; client/ carries
// schedules out, scheduler/ prices them (collectives/traffic.h), so that what is predicted is what
// runs.
//
// Thread safety: pure functions of their arguments. Arguments that make no sense (a rank outside
// the workers, a grid whose sizes' product is not the workers) are the caller's bug and end the
// program: plans are checked where they are made.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/model.pb.h"

namespace poseidon {

struct Range {
  int64_t offset = 0;  // floats
  int64_t size = 0;
  bool operator==(const Range&) const = default;
};

struct Operation {
  enum class Kind {
    kSend,   // the range to `peer`
    kAdd,    // wait for the range from `peer` and add it to one's own
    kCopy,   // wait for the range from `peer` and take it in place of one's own
    kRound,  // the range is the whole sum now: give it the precision of the wire's codec, which
             // what the others will get has, too
  };
  Kind kind = Kind::kSend;
  int peer = 0;  // rank; not of kRound
  // Tells messages from one worker to another apart; the same at both ends.
  int step = 0;
  Range range;
  bool operator==(const Operation&) const = default;
};

// Carried out in order. A send does not wait. Ranges of size 0 do not occur.
//
// A range that was sent is written again only by a kCopy whose frame can't have been made before
// the sent one was received: floats may be sent without a copy. The last sends of a schedule may
// still be under way when its last operation is done.
using Schedule = std::vector<Operation>;

// All-reduce of `range`: every worker ends with the sum of all workers' floats, the same bits
// everywhere and in every run. `scheme` is RING, HALVING_DOUBLING or TORUS; `grid` is the plan's
// (TORUS only); `chunk` is the index of the chunk in its bucket: chunks of a torus start in
// different dimensions, so that the links of all are busy, and those of halving-doubling among
// workers that are no power of two place them differently, so that all send as much. 0 <= rank <
// workers.
Schedule AllReduceSchedule(Scheme scheme, const Plan& grid, int chunk, Range range, int rank,
                           int workers);

// All-gather: worker r has blocks[r] in place at first, all have all at the end. Around the ring
// (RING) or by doubling (HALVING_DOUBLING: Bruck et al. 1997, which is as good for any number of
// workers). Blocks may have any sizes and places. No kAdd, no kRound.
Schedule AllGatherSchedule(Scheme scheme, const std::vector<Range>& blocks, int rank);

}  // namespace poseidon
