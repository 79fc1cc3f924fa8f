// DataShare: which part of the training data a worker reads, in a job whose number of workers may
// change.
//
// A tenure is the time in which the number of workers is the same. Those of a tenure go on in the
// sequence of samples where those of the one before stopped, so every sample is read as often as
// by one worker that reads them all: without gap or repetition.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace poseidon {

struct DataTenure {
  int64_t start = 0;    // number of its first batch, from 0
  int64_t workers = 1;  // of which each reads one batch of each number
};

struct DataShare {
  int64_t place = 0;  // of the worker among those of the last tenure, from 0
  // Ascending; the first starts at 0, the last has no end.
  std::vector<DataTenure> tenures = {{}};
  // Samples of each worker's batch, by place, where they differ; then there is one tenure. Empty:
  // all have as many.
  std::vector<int64_t> parts = {};
};

// How many batches all workers together have read before number `batch`; `batch` is not before the
// last tenure's first.
//
//   BatchesBefore({.tenures = {{0, 4}, {10, 3}}}, 12)  ->  4 * 10 + 3 * 2
inline int64_t BatchesBefore(const DataShare& share, int64_t batch) {
  int64_t batches = 0;
  for (std::size_t i = 0; i < share.tenures.size(); ++i) {
    const DataTenure& tenure = share.tenures[i];
    const bool last = i + 1 == share.tenures.size();
    batches += ((last ? batch : share.tenures[i + 1].start) - tenure.start) * tenure.workers;
  }
  return batches;
}

// Where in the sequence the first sample of batch number `batch` of the worker at `place` is; of
// equal parts, each has `samples`.
//
//   FirstPosition({.tenures = {{0, 2}}, .parts = {5, 3}}, 1, 10, 4)  ->  8 * 10 + 5
inline int64_t FirstPosition(const DataShare& share, int64_t place, int64_t batch,
                             int64_t samples) {
  if (share.parts.empty()) return (BatchesBefore(share, batch) + place) * samples;
  const auto own = share.parts.begin() + place;
  const int64_t all = std::accumulate(share.parts.begin(), share.parts.end(), int64_t{0});
  return batch * all + std::accumulate(share.parts.begin(), own, int64_t{0});
}

// How many times as many samples as the mean part has the part of the worker at `place`; 1 where
// all have as many. With the mean over a worker's samples times this, the mean over workers is the
// mean over all samples.
//
//   ShareOfSamples({5, 3}, 1)  ->  0.75
inline double ShareOfSamples(const std::vector<int64_t>& parts, std::size_t place) {
  if (parts.empty()) return 1;
  const auto all = static_cast<double>(std::accumulate(parts.begin(), parts.end(), int64_t{0}));
  return static_cast<double>(parts.at(place) * static_cast<int64_t>(parts.size())) / all;
}

// That of one of a worker's `replicas`, which read as so many workers would.
inline DataShare ShareOfReplica(DataShare share, int64_t replica, int64_t replicas) {
  share.place = share.place * replicas + replica;
  for (DataTenure& tenure : share.tenures) tenure.workers *= replicas;
  return share;
}

}  // namespace poseidon
