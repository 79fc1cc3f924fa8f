#include "caffe_adapter/data/dataset.h"

#include "caffe_adapter/data/fingerprint.h"
#include "core/error.h"

namespace poseidon {
namespace {

Shape ShapeOf(const caffe::Datum& datum) {
  return {datum.channels(), datum.height(), datum.width()};
}

}  // namespace

Dataset::Dataset(const std::string& path, caffe::DataParameter::DB backend, Records records)
    : path_(path), store_(OpenRecordStore(path, backend, records)) {
  if (size() == 0) throw DataError(path_ + ": the database has no records");
  Read(0);
}

uint64_t Dataset::Fingerprint() const {
  uint64_t hash = 0;
  for (int64_t index = 0; index < size(); ++index) {
    hash = ExtendFingerprint(hash, store_->key(index));
  }
  for (const int64_t index : RecordsToLookAt(size())) {
    try {
      hash = ExtendFingerprint(hash, Read(index).SerializeAsString());
    } catch (const DataError&) {
    }
  }
  return hash;
}

std::string Dataset::Describe(int64_t index) const {
  return path_ + ": record " + std::to_string(index) + " (key \"" +
         std::string(store_->key(index)) + "\")";
}

void Dataset::Fail(int64_t index, const std::string& message) const {
  throw DataError(Describe(index) + ": " + message);
}

caffe::Datum Dataset::Read(int64_t index) const {
  if (index < 0 || index >= size()) {
    throw DataError(path_ + ": there is no record " + std::to_string(index) + "; it has " +
                    std::to_string(size()));
  }
  caffe::Datum datum;
  if (!store_->Read(index, datum)) Fail(index, "is no Datum");
  const std::string error = DatumError(datum);
  if (!error.empty()) Fail(index, error);
  return datum;
}

caffe::Datum Dataset::ReadDecoded(int64_t index, ImageChannels channels) const {
  caffe::Datum datum = Read(index);
  if (!datum.encoded()) return datum;
  ByteImage image = DecodeImage(datum.data(), channels, Describe(index));
  datum.set_channels(static_cast<int>(image.shape[0]));
  datum.set_height(static_cast<int>(image.shape[1]));
  datum.set_width(static_cast<int>(image.shape[2]));
  datum.set_data(std::move(image.bytes));
  datum.set_encoded(false);
  return datum;
}

Shape Dataset::record_shape(ImageChannels channels) const {
  return ShapeOf(ReadDecoded(0, channels));
}

std::string DatumError(const caffe::Datum& datum) {
  if (!datum.data().empty() && datum.float_data_size() > 0) {
    return "has both data and float_data";
  }
  if (datum.encoded()) return datum.data().empty() ? "is encoded, but has no data" : "";
  const Shape shape = ShapeOf(datum);
  if (datum.channels() < 1 || datum.height() < 1 || datum.width() < 1) {
    return "is " + ToString(shape) + "; expected channels, height and width of at least 1";
  }
  const int64_t values =
      datum.data().empty() ? datum.float_data_size() : static_cast<int64_t>(datum.data().size());
  // Divided rather than multiplied: three extents of 2^31 overflow.
  const bool fits = values % shape[0] == 0 && values / shape[0] % shape[1] == 0 &&
                    values / shape[0] / shape[1] == shape[2];
  if (fits) return "";
  return "has " + std::to_string(values) + " values, which is not " + ToString(shape);
}

}  // namespace poseidon
