// Where the layers that read files get their samples from: Data, ImageData, HDF5Data, WindowData.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "caffe_adapter/data/data_order.h"
#include "caffe_adapter/net/net.h"
#include "caffe_adapter/net/shape.h"

namespace poseidon {

// The samples of one layer, numbered from 0. One thread at a time.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual OrderedRecords records() const = 0;

  // Equal for the same records wherever they are stored, and other for most others
  // (caffe_adapter/data/fingerprint.h). Reads some records; what can't be read counts as nothing,
  // for training to tell of. Throws Error of kFailure where that may pass.
  virtual uint64_t Fingerprint() = 0;

  // Reads and transforms a record into one sample of each top; `seed` decides crop and mirror.
  // Throws DataError that names file and record and what was expected.
  virtual void Read(int64_t record, uint64_t seed, std::span<const std::span<float>> tops) = 0;

  // "record 17 of PATH": where a record stands, for errors about its values.
  virtual std::string Describe(int64_t record) const = 0;
};

// Whether a layer of this type has a SampleSource.
bool ReadsSamples(const std::string& layer_type);

// Opens what the layer reads. Throws DataError if it can't be read, ConfigError for a
// transform_param that does not fit.
std::unique_ptr<SampleSource> MakeSampleSource(const LayerDescription& layer);

// What the layer asks for beside its samples: an order of its own, and how many of the first
// records to skip at most (rand_skip). Only some types can ask.
struct SampleOrder {
  bool shuffle = false;
  uint32_t rand_skip = 0;
};
SampleOrder OrderOf(const caffe::LayerParameter& layer);

// The sources by type, for MakeSampleSource.
std::unique_ptr<SampleSource> MakeDatumSource(const LayerDescription& layer);      // Data
std::unique_ptr<SampleSource> MakeImageListSource(const LayerDescription& layer);  // ImageData
std::unique_ptr<SampleSource> MakeHdf5Source(const LayerDescription& layer);       // HDF5Data
std::unique_ptr<SampleSource> MakeWindowSource(const LayerDescription& layer);     // WindowData
Shape FirstDatumShape(const caffe::LayerParameter& layer, const Location& where);
Shape FirstListedImageShape(const caffe::LayerParameter& layer);
std::vector<Shape> FirstHdf5Shapes(const caffe::LayerParameter& layer);
Shape WindowShape(const caffe::LayerParameter& layer);  // after scaling, whatever the images are

}  // namespace poseidon
