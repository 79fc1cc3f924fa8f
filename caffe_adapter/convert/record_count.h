// RecordCount: how many records of a conversion are done, for who wants to see it go on.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "caffe_adapter/convert/convert.h"

namespace poseidon {

class RecordCount {
 public:
  // `progress` may be null. More than `all` may come, where they were only estimated.
  RecordCount(ConvertProgress progress, int64_t all) : progress_(std::move(progress)), all_(all) {}

  // Another one is done.
  void Next() {
    ++done_;
    if (progress_) progress_(done_, std::max(done_, all_));
  }

 private:
  ConvertProgress progress_;
  int64_t all_;
  int64_t done_ = 0;
};

}  // namespace poseidon
