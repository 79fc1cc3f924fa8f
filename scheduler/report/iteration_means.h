// IterationMeans: a value of each iteration of a training, in bounded memory: where there are more
// iterations than places, a place is the mean of several.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace poseidon {

// A value; not thread-safe. Indices count from 0, the first iteration.
//
//   IterationMeans losses;
//   losses.Add(0, 2.3);
//   losses.Add(2, 2.1);
//   losses.Means();  // {2.3, NaN, 2.1}
class IterationMeans {
 public:
  // So many that each of the 450,000 iterations of BVLC Caffe's AlexNet has its own, and so few
  // that a week's summary.json, with up to five such lists of up to 27 bytes a value, is 71 MB.
  static constexpr size_t kMostPlaces = size_t{1} << 19;

  // At least two places.
  explicit IterationMeans(size_t most_places = kMostPlaces) : most_places_(most_places) {}

  // In any order, each index once. A value that is not a number is not told, but counts in size().
  void Add(int64_t index, double value);
  // Iterations from `index` on are to come again. Where some of them share a place with those
  // before, that one's mean stands for these.
  void CutFrom(int64_t index);

  // One more than the highest index.
  int64_t size() const { return size_; }
  // How many iterations a place has; the last place may have fewer. A power of two.
  int64_t stride() const { return stride_; }
  // By place, from the first that begins at `index` or after it; NaN where no iteration tells.
  std::vector<double> Means(int64_t index = 0) const;

 private:
  struct Place {
    double sum = 0;
    int64_t told = 0;  // how many values the sum has
  };

  static double Mean(const Place& place);
  void Halve();

  size_t most_places_;
  std::vector<Place> places_;
  int64_t size_ = 0;
  int64_t stride_ = 1;
};

}  // namespace poseidon
