#include "caffe_adapter/data/data_order.h"

#include <glog/logging.h>

#include <numeric>
#include <utility>

#include "core/random.h"

namespace poseidon {

DataOrder::DataOrder(OrderedRecords of, int64_t workers, int64_t batch, bool shuffle, uint64_t seed,
                     int64_t skip)
    : of_(std::move(of)),
      share_{.tenures = {{0, workers}}},
      batch_(batch),
      shuffle_(shuffle),
      seed_(seed),
      skip_(skip) {
  if (!of_.files.empty()) of_.records = std::accumulate(of_.files.begin(), of_.files.end(), 0L);
  CHECK_GT(of_.records, 0);
  CHECK_GT(workers, 0);
  CHECK_GT(batch, 0);
  CHECK_GE(skip, 0);
}

bool DataOrder::ReadsSideBySide(const DataOrder& other) const {
  return !of_.drawn && !other.of_.drawn && of_.records == other.of_.records &&
         batch_ == other.batch_ && skip_ == other.skip_;
}

bool DataOrder::ReadsTheSame(const DataOrder& other) const {
  if (!ReadsSideBySide(other) || shuffle_ != other.shuffle_) return false;
  if (!shuffle_ || (!cut() && !other.cut())) return true;
  return of_.files == other.of_.files;
}

int64_t DataOrder::Record(int64_t position) {
  if (of_.drawn) return Draw(*of_.drawn, position);
  const int64_t at = position + skip_;
  if (!shuffle_) return at % of_.records;
  if (at / of_.records != epoch_) Permute(at / of_.records);
  return permutation_[at % of_.records];
}

int64_t DataOrder::Draw(const DrawnRecords& drawn, int64_t position) const {
  // Whole numbers, so that a batch of 10 has 7 of 70 % wherever it stands in the sequence. Taken
  // apart, for a product with the position itself could overflow.
  const auto of_first_kind = [&](int64_t positions) {
    return positions / DrawnRecords::kMillion * drawn.first_kind_of_a_million +
           positions % DrawnRecords::kMillion * drawn.first_kind_of_a_million /
               DrawnRecords::kMillion;
  };
  const bool first = of_first_kind(position + 1) > of_first_kind(position);
  const int64_t begin = first ? 0 : drawn.first_kind;
  const int64_t end = first ? drawn.first_kind : of_.records;
  Random random(DeriveSeed(DeriveSeed(seed_, "drawn"), static_cast<uint64_t>(position)));
  return begin + static_cast<int64_t>(random.Below(static_cast<uint64_t>(end - begin)));
}

void DataOrder::Permute(int64_t epoch) {
  epoch_ = epoch;
  const uint64_t seed = DeriveSeed(seed_, static_cast<uint64_t>(epoch));
  permutation_.resize(of_.records);
  if (cut()) {
    PermuteFiles(seed);
  } else {
    std::iota(permutation_.begin(), permutation_.end(), 0);
    Shuffle(permutation_, seed);
  }
}

void DataOrder::PermuteFiles(uint64_t seed) {
  std::vector<int64_t> begins;  // of each file, in records
  int64_t next = 0;
  for (const int64_t size : of_.files) begins.push_back(std::exchange(next, next + size));
  std::vector<size_t> files(of_.files.size());
  std::iota(files.begin(), files.end(), 0);
  Shuffle(files, DeriveSeed(seed, "files"));
  permutation_.clear();
  for (const size_t file : files) {
    std::vector<int64_t> records(of_.files[file]);
    std::iota(records.begin(), records.end(), begins[file]);
    Shuffle(records, DeriveSeed(seed, static_cast<uint64_t>(file)));
    permutation_.insert(permutation_.end(), records.begin(), records.end());
  }
}

}  // namespace poseidon
