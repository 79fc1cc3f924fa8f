// The ImageData layer: image files, named in a list.
#include "caffe_adapter/data/fingerprint.h"
#include "caffe_adapter/data/image_file.h"
#include "caffe_adapter/data/image_list.h"
#include "caffe_adapter/data/sample_source.h"
#include "caffe_adapter/data/transform.h"
#include "caffe_adapter/files/file.h"
#include "core/error.h"

namespace poseidon {
namespace {

ByteImage ReadListed(const caffe::ImageDataParameter& parameter, const ListedImage& image) {
  return ReadImageFile(parameter.root_folder() + image.path,
                       parameter.is_color() ? ImageChannels::kColor : ImageChannels::kGray,
                       parameter.new_height(), parameter.new_width());
}

class ImageListSource : public SampleSource {
 public:
  explicit ImageListSource(const LayerDescription& layer)
      : parameter_(layer.parameter.image_data_param()),
        images_(ReadImageList(parameter_.source())),
        transformer_(layer.parameter.transform_param(), layer.parameter.phase(),
                     ReadListed(parameter_, images_[0]).shape, layer.where) {}

  OrderedRecords records() const override { return {static_cast<int64_t>(images_.size())}; }

  uint64_t Fingerprint() override {
    uint64_t hash = 0;
    for (const ListedImage& image : images_) {
      hash = ExtendFingerprint(hash, image.path + " " + std::to_string(image.label));
    }
    for (const int64_t record : RecordsToLookAt(records().records)) {
      try {
        hash = ExtendFingerprint(hash, ReadFile(parameter_.root_folder() + images_[record].path));
      } catch (const DataError&) {
      }
    }
    return hash;
  }

  void Read(int64_t record, uint64_t seed, std::span<const std::span<float>> tops) override {
    const ListedImage& listed = images_[record];
    const ByteImage image = ReadWithPlace(record);
    const std::string error = transformer_.ShapeError(image.shape);
    if (!error.empty()) {
      throw DataError(Place(record) + ": " + parameter_.root_folder() + listed.path + " " + error +
                      "; set new_height and new_width to make all images alike");
    }
    transformer_.Apply(image, seed, tops[0]);
    if (tops.size() > 1) tops[1][0] = static_cast<float>(listed.label);
  }

  std::string Describe(int64_t record) const override {
    return images_[record].path + " (" + Place(record) + ")";
  }

 private:
  std::string Place(int64_t record) const {
    return parameter_.source() + ":" + std::to_string(images_[record].line);
  }

  ByteImage ReadWithPlace(int64_t record) const {
    try {
      return ReadListed(parameter_, images_[record]);
    } catch (const Error& error) {
      ThrowAs(error.exit_code(), Place(record) + ": " + error.what());
    }
  }

  caffe::ImageDataParameter parameter_;
  std::vector<ListedImage> images_;
  Transformer transformer_;
};

}  // namespace

std::unique_ptr<SampleSource> MakeImageListSource(const LayerDescription& layer) {
  return std::make_unique<ImageListSource>(layer);
}

Shape FirstListedImageShape(const caffe::LayerParameter& layer) {
  const caffe::ImageDataParameter& parameter = layer.image_data_param();
  return ReadListed(parameter, ReadImageList(parameter.source())[0]).shape;
}

}  // namespace poseidon
