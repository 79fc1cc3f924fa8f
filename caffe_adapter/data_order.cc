#include "caffe_adapter/data_order.h"

#include <glog/logging.h>

#include <numeric>

#include "core/random.h"

namespace poseidon {

DataOrder::DataOrder(int64_t records, int64_t workers, int64_t batch, bool shuffle, uint64_t seed)
    : records_(records), workers_(workers), batch_(batch), shuffle_(shuffle), seed_(seed) {
  CHECK_GT(records, 0);
  CHECK_GT(workers, 0);
  CHECK_GT(batch, 0);
}

int64_t DataOrder::Record(int64_t position) {
  if (!shuffle_) return position % records_;
  if (position / records_ != epoch_) Permute(position / records_);
  return permutation_[position % records_];
}

void DataOrder::Permute(int64_t epoch) {
  epoch_ = epoch;
  permutation_.resize(records_);
  std::iota(permutation_.begin(), permutation_.end(), 0);
  Shuffle(permutation_, DeriveSeed(seed_, static_cast<uint64_t>(epoch)));
}

}  // namespace poseidon
