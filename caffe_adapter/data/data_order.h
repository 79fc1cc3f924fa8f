// Which record each worker reads when.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "caffe_adapter/data/data_share.h"

namespace poseidon {

// Records of two kinds that are drawn at random, so that one may come again before another has
// come: the windows of a WindowData layer.
struct DrawnRecords {
  static constexpr int64_t kMillion = 1'000'000;

  int64_t first_kind = 0;  // records; those behind them are of the second kind
  // Of a million positions, which are spread evenly: a quarter is each fourth position.
  int64_t first_kind_of_a_million = 0;
};

// What an order is of. Either `records` in all, or, where records come in files that are read
// whole, how many each file has.
struct OrderedRecords {
  int64_t records = 0;
  std::vector<int64_t> files = {};
  std::optional<DrawnRecords> drawn = std::nullopt;
};

// All workers read parts of one sequence of records: P workers with batch B read in an iteration
// exactly what one worker with batch P * B reads, in the same order.
//
//   position = (iteration * workers + rank) * batch + i,  i = 0..batch - 1
//
// Where the number of workers has changed on the way, iteration * workers is BatchesBefore(share,
// iteration) and the rank is the place; where workers have parts of different sizes,
// (iteration * workers + rank) * batch is FirstPosition (caffe_adapter/data/data_share.h).
//
//   epoch    = (position + skip) / records
//   record   = permutation(epoch)[(position + skip) % records]
//
// Shuffled, an epoch has a random permutation of its own (Fisher and Yates, with the draws of
// core/random.h: the same on every platform), of the files and of the records in each file where
// there are several files; otherwise records come in database order, as in Caffe. The order of a
// single file is that of a database, so that layers which read the two read the same samples. Drawn
// records have no epochs: which one a position has depends on seed and position alone.
class DataOrder {
 public:
  DataOrder(OrderedRecords of, int64_t workers, int64_t batch, bool shuffle, uint64_t seed,
            int64_t skip = 0);
  DataOrder(int64_t records, int64_t workers, int64_t batch, bool shuffle, uint64_t seed)
      : DataOrder(OrderedRecords{records}, workers, batch, shuffle, seed) {}

  // The place of sample `i` of the batch that worker `rank` reads in `iteration`.
  int64_t Position(int64_t iteration, int64_t rank, int64_t i) const {
    return FirstPosition(share_, rank, iteration, batch_) + i;
  }
  // The number of workers changes, or has done so. For positions from the last tenure's start on.
  void SetShare(const DataShare& share) { share_ = share; }

  // Whether each position would have the record of the same number in both, if neither shuffled:
  // two layers then read parts of the same samples, or else chance has it so.
  bool ReadsSideBySide(const DataOrder& other) const;
  // Whether it has.
  bool ReadsTheSame(const DataOrder& other) const;

  // The record at a position. Keeps one epoch's permutation, 8 bytes a record, so positions should
  // come about in order. One thread at a time.
  int64_t Record(int64_t position);

 private:
  int64_t Draw(const DrawnRecords& drawn, int64_t position) const;
  void Permute(int64_t epoch);
  void PermuteFiles(uint64_t seed);
  bool cut() const { return of_.files.size() > 1; }  // into files that are shuffled one by one

  OrderedRecords of_;
  DataShare share_;  // without the place
  int64_t batch_;
  bool shuffle_;
  uint64_t seed_;
  int64_t skip_;
  int64_t epoch_ = -1;  // of permutation_
  std::vector<int64_t> permutation_;
};

}  // namespace poseidon
