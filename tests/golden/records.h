// The data that golden solvers train on, made by Caffe's side and by ours.
#pragma once

#include <algorithm>
#include <string>

#include "caffe_adapter/convert/dataset_writer.h"
#include "core/random.h"
#include "proto/caffe.pb.h"

namespace poseidon {

// Square images of 10 classes: noise with a bright block, whose place is the class.
struct GoldenRecords {
  const char* name;  // that nets have as their source
  int count;         // no multiple of the nets' batches, so that some go over the end
  int channels;
  int extent;
};

inline constexpr GoldenRecords kGoldenRecords[] = {
    {.name = "small", .count = 37, .channels = 1, .extent = 6},
    {.name = "images", .count = 75, .channels = 3, .extent = 16},
};

// Writes an LMDB.
inline void WriteRecords(const GoldenRecords& records, const std::string& path) {
  DatasetWriter writer(path);
  Random random(20140606);
  const int block = records.extent / 5;
  for (int i = 0; i < records.count; ++i) {
    const int label = static_cast<int>(random.Below(10));
    caffe::Datum datum;
    datum.set_channels(records.channels);
    datum.set_height(records.extent);
    datum.set_width(records.extent);
    datum.set_label(label);
    for (int c = 0; c < records.channels; ++c) {
      for (int y = 0; y < records.extent; ++y) {
        for (int x = 0; x < records.extent; ++x) {
          const bool bright = x / block == label % 5 && y / block == 1 + 2 * (label / 5);
          datum.mutable_data()->push_back(
              static_cast<char>(random.Below(100) + (bright ? 120 : 0)));
        }
      }
    }
    writer.Append(datum);
  }
  writer.Finish();
}

}  // namespace poseidon
