#include "server/iteration_sum.h"

#include <glog/logging.h>

namespace poseidon {
IterationSum::IterationSum(int gradients, bool in_order, const Codec& codec, int64_t floats)
    : gradients_(gradients), codec_(codec), floats_(floats), early_(in_order ? gradients : 0) {}

bool IterationSum::Add(int worker, const Payload& gradient, AccumulatorPool& pool) {
  if (gradient.size() != EncodedBytes(codec_, floats_)) return false;
  if (!gradient.phantom()) {
    const bool early = !early_.empty() && worker != next_in_order_;
    if (early ? !WellFormed(gradient, pool) : !Accumulate(gradient, pool)) return false;
    if (early) {
      early_[worker] = gradient;
    } else if (!early_.empty()) {
      ++next_in_order_;
      AccumulateEarly(pool);
    }
  }
  ++count_;
  return true;
}

bool IterationSum::Accumulate(const Payload& gradient, AccumulatorPool& pool) {
  if (!sum_.empty()) return AddDecoded(codec_, gradient.bytes(), sum_);
  const std::span<float> sum = pool.Borrow(floats_);
  if (Decode(codec_, gradient.bytes(), sum)) {
    sum_ = sum;
    return true;
  }
  pool.Return(sum);
  return false;
}

void IterationSum::AccumulateEarly(AccumulatorPool& pool) {
  while (next_in_order_ < gradients_ && early_[next_in_order_].size() > 0) {
    CHECK(Accumulate(early_[next_in_order_], pool));
    early_[next_in_order_] = {};
    ++next_in_order_;
  }
}

bool IterationSum::WellFormed(const Payload& gradient, AccumulatorPool& pool) const {
  // Only bodies of these codecs can have the right size and still be none of theirs.
  if (!NeedsErrorFeedback(codec_)) return true;
  const std::span<float> scratch = pool.Borrow(floats_);
  const bool decodes = Decode(codec_, gradient.bytes(), scratch);
  pool.Return(scratch);
  return decodes;
}

void IterationSum::Reset(AccumulatorPool& pool) {
  if (!sum_.empty()) pool.Return(sum_);
  sum_ = {};
  count_ = 0;
  next_in_order_ = 0;
}

}  // namespace poseidon
