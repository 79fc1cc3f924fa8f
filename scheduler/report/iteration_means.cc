#include "scheduler/report/iteration_means.h"

#include <algorithm>
#include <cmath>

#include "scheduler/report/unknown_value.h"

namespace poseidon {

double IterationMeans::Mean(const Place& place) {
  return place.told > 0 ? place.sum / static_cast<double>(place.told) : kUnknownValue;
}

void IterationMeans::Add(int64_t index, double value) {
  while (index / stride_ >= static_cast<int64_t>(most_places_)) Halve();
  const auto at = static_cast<size_t>(index / stride_);
  if (places_.size() <= at) places_.resize(at + 1);
  size_ = std::max(size_, index + 1);
  if (std::isnan(value)) return;
  places_[at].sum += value;
  ++places_[at].told;
}

void IterationMeans::CutFrom(int64_t index) {
  if (index >= size_) return;
  size_ = index;
  places_.resize((index + stride_ - 1) / stride_);
  if (index % stride_ == 0) return;
  Place& last = places_.back();
  const int64_t told = std::min(last.told, index % stride_);
  last = {told > 0 ? Mean(last) * static_cast<double>(told) : 0, told};
}

std::vector<double> IterationMeans::Means(int64_t index) const {
  std::vector<double> means;
  for (size_t at = (index + stride_ - 1) / stride_; at < places_.size(); ++at) {
    means.push_back(Mean(places_[at]));
  }
  return means;
}

void IterationMeans::Halve() {
  for (size_t i = 0; i < places_.size(); i += 2) {
    Place both = places_[i];
    if (i + 1 < places_.size()) {
      both.sum += places_[i + 1].sum;
      both.told += places_[i + 1].told;
    }
    places_[i / 2] = both;
  }
  places_.resize((places_.size() + 1) / 2);
  stride_ *= 2;
}

}  // namespace poseidon
