// The Data layer: a database of Datum.
#include "caffe_adapter/data/dataset.h"
#include "caffe_adapter/data/sample_source.h"
#include "caffe_adapter/data/transform.h"
#include "core/error.h"

namespace poseidon {
namespace {

class DatumSource : public SampleSource {
 public:
  explicit DatumSource(const LayerDescription& layer)
      : dataset_(layer.parameter.data_param().source(), layer.parameter.data_param().backend()),
        channels_(ChannelsOf(layer.parameter.transform_param(), layer.where)),
        transformer_(layer.parameter.transform_param(), layer.parameter.phase(),
                     dataset_.record_shape(channels_), layer.where) {}

  OrderedRecords records() const override { return {dataset_.size()}; }

  uint64_t Fingerprint() override { return dataset_.Fingerprint(); }

  void Read(int64_t record, uint64_t seed, std::span<const std::span<float>> tops) override {
    const caffe::Datum datum = dataset_.ReadDecoded(record, channels_);
    std::string error = transformer_.ShapeError({datum.channels(), datum.height(), datum.width()});
    if (error.empty() && tops.size() > 1 && !datum.has_label()) {
      error = "has no label, but the layer has a top for it";
    }
    if (!error.empty()) throw DataError(dataset_.Describe(record) + ": " + error);
    transformer_.Apply(datum, seed, tops[0]);
    if (tops.size() > 1) tops[1][0] = static_cast<float>(datum.label());
  }

  std::string Describe(int64_t record) const override {
    return "record " + std::to_string(record) + " of " + dataset_.path();
  }

 private:
  Dataset dataset_;
  ImageChannels channels_;
  Transformer transformer_;
};

}  // namespace

std::unique_ptr<SampleSource> MakeDatumSource(const LayerDescription& layer) {
  return std::make_unique<DatumSource>(layer);
}

Shape FirstDatumShape(const caffe::LayerParameter& layer, const Location& where) {
  const caffe::DataParameter& data = layer.data_param();
  return Dataset(data.source(), data.backend(), Records::kFirst)
      .record_shape(ChannelsOf(layer.transform_param(), where));
}

}  // namespace poseidon
