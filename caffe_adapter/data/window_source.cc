// The WindowData layer: windows of images, each scaled to a square of crop_size.
#include <algorithm>
#include <cmath>
#include <optional>

#include "caffe_adapter/data/fingerprint.h"
#include "caffe_adapter/data/image_file.h"
#include "caffe_adapter/data/sample_source.h"
#include "caffe_adapter/data/window_list.h"
#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/files/file.h"
#include "core/error.h"
#include "core/random.h"

namespace poseidon {
namespace {

constexpr int64_t kChannels = 3;

// Which part of an image fills which part of a sample.
struct Placement {
  ImageRegion from;
  int64_t height = 0;  // that it is scaled to; 0 if nothing of it can be seen
  int64_t width = 0;
  int64_t top = 0;  // in the sample
  int64_t left = 0;
};

// One direction of a window, in the floats that Caffe rounds from.
struct Stretch {
  Stretch(int64_t first, int64_t last)
      : half(static_cast<float>(last - first + 1) / 2), center(static_cast<float>(first) + half) {}

  float half;
  float center;
};

struct Part {
  int64_t first;   // pixel of the image
  int64_t pixels;  // of it, at most 0 if it lies outside
  int64_t before;  // pixels of the sample that stay empty
  int64_t after;
  int64_t extent;  // pixels of the sample that it fills, unless they are too many by rounding
};

// The stretch made longer by `factor` around its center, as far as it is in the image. Caffe takes
// for its last pixel the one behind it; so do we, for nets have learned from that.
Part Expand(const Stretch& stretch, float factor, int64_t image_extent, int64_t crop) {
  const auto first = static_cast<int64_t>(std::round(stretch.center - stretch.half * factor));
  const auto last = static_cast<int64_t>(std::round(stretch.center + stretch.half * factor));
  const int64_t before = std::max<int64_t>(0, -first);
  const int64_t after = std::max<int64_t>(0, last - image_extent + 1);
  const int64_t pixels = last - after - (first + before) + 1;
  const float scale = static_cast<float>(crop) / static_cast<float>(last - first + 1);
  const auto scaled = [scale](int64_t extent) {
    return static_cast<int64_t>(std::round(static_cast<float>(extent) * scale));
  };
  return {first + before, pixels, scaled(before), scaled(after), scaled(pixels)};
}

class WindowSource : public SampleSource {
 public:
  explicit WindowSource(const LayerDescription& layer)
      : parameter_(layer.parameter.window_data_param()),
        transform_(layer.parameter.transform_param()),
        crop_(transform_.crop_size()),
        scale_(parameter_.has_scale() ? parameter_.scale() : transform_.scale()),
        list_(ReadWindowList(parameter_.source(), parameter_.fg_threshold(),
                             parameter_.bg_threshold())),
        files_(parameter_.cache_images() ? list_.images.size() : 0) {
    CheckKind(list_.foreground, parameter_.fg_fraction() > 0, "of the foreground");
    CheckKind(list_.background, parameter_.fg_fraction() < 1, "of the background");
    SetMean(layer.where);
  }

  OrderedRecords records() const override {
    OrderedRecords records;
    records.records = static_cast<int64_t>(list_.foreground.size() + list_.background.size());
    records.drawn = {static_cast<int64_t>(list_.foreground.size()),
                     std::lround(parameter_.fg_fraction() * DrawnRecords::kMillion)};
    return records;
  }

  uint64_t Fingerprint() override {
    uint64_t hash = list_.fingerprint;
    for (const int64_t image : RecordsToLookAt(static_cast<int64_t>(list_.images.size()))) {
      try {
        hash = ExtendFingerprint(hash, ReadFile(PathOf(image)));
      } catch (const DataError&) {
      }
    }
    return hash;
  }

  void Read(int64_t record, uint64_t seed, std::span<const std::span<float>> tops) override {
    const Window& window = At(record);
    const ByteImage image = ReadWithPlace(window);
    const bool mirror = transform_.mirror() && Random(seed).Below(2) == 1;
    std::fill(tops[0].begin(), tops[0].end(), 0.0F);
    Fill(image, Place(window, image.shape, mirror), mirror, tops[0]);
    tops[1][0] = static_cast<float>(window.label);
  }

  std::string Describe(int64_t record) const override {
    const Window& window = At(record);
    return "the window at " + PlaceOf(window) + " in " + PathOf(window.image);
  }

 private:
  void CheckKind(const std::vector<Window>& windows, bool needed, const std::string& kind) const {
    if (!needed || !windows.empty()) return;
    throw DataError(parameter_.source() + ": lists no window " + kind +
                    "; expected some by fg_threshold, bg_threshold and fg_fraction");
  }

  // The mean image's middle, as large as a sample.
  void SetMean(const Location& where) {
    const int values = transform_.mean_value_size();
    if (values > 0) {
      if (transform_.has_mean_file()) {
        throw ConfigError(where, "give mean_file or mean_value, not both");
      }
      if (values != 1 && values != kChannels) {
        throw ConfigError(where, "there are " + std::to_string(values) +
                                     " mean_value entries; expected 1 or one for each of 3 "
                                     "channels");
      }
      for (int64_t i = 0; i < kChannels * crop_ * crop_; ++i) {
        mean_.push_back(
            transform_.mean_value(values == 1 ? 0 : static_cast<int>(i / (crop_ * crop_))));
      }
    } else if (transform_.has_mean_file()) {
      ReadMeanImage(where);
    }
  }

  void ReadMeanImage(const Location& where) {
    caffe::BlobProto blob;
    ReadBinaryFile(transform_.mean_file(), blob);
    Shape shape = BlobProtoShape(blob);
    if (shape.size() == 4 && shape[0] == 1) shape.erase(shape.begin());
    if (shape.size() != 3 || shape[0] != kChannels || shape[1] < crop_ || shape[2] < crop_) {
      throw ConfigError(where, "the mean image " + transform_.mean_file() + " is " +
                                   ToString(shape) + "; expected 3 channels and at least " +
                                   "crop_size, " + std::to_string(crop_) + ", in both directions");
    }
    const std::vector<float> values = ToValues(blob);
    const int64_t top = (shape[1] - crop_) / 2;
    const int64_t left = (shape[2] - crop_) / 2;
    for (int64_t channel = 0; channel < kChannels; ++channel) {
      for (int64_t y = 0; y < crop_; ++y) {
        const auto row = values.begin() + (channel * shape[1] + top + y) * shape[2] + left;
        mean_.insert(mean_.end(), row, row + crop_);
      }
    }
  }

  const Window& At(int64_t record) const {
    const auto foreground = static_cast<int64_t>(list_.foreground.size());
    return record < foreground ? list_.foreground[record] : list_.background[record - foreground];
  }

  std::string PathOf(int64_t image) const { return parameter_.root_folder() + list_.images[image]; }

  std::string PlaceOf(const Window& window) const {
    return parameter_.source() + ":" + std::to_string(window.line);
  }

  ByteImage ReadWithPlace(const Window& window) {
    const std::string path = PathOf(window.image);
    try {
      if (files_.empty()) return DecodeImage(ReadFile(path), ImageChannels::kColor, path);
      std::optional<std::string>& file = files_[window.image];
      if (!file) file = ReadFile(path);
      return DecodeImage(*file, ImageChannels::kColor, path);
    } catch (const Error& error) {
      ThrowAs(error.exit_code(), PlaceOf(window) + ": " + error.what());
    }
  }

  [[noreturn]] void FailOutside(const Window& window, const Shape& image) const {
    throw DataError(PlaceOf(window) + ": the window lies outside of " + PathOf(window.image) +
                    ", which is " + ToString(image));
  }

  Placement Place(const Window& window, const Shape& image, bool mirror) const {
    const bool square = parameter_.crop_mode() == "square";
    if (parameter_.context_pad() == 0 && !square) {
      if (window.left < 0 || window.top < 0 || window.right >= image[2] ||
          window.bottom >= image[1]) {
        FailOutside(window, image);
      }
      return {
          {window.top, window.left, window.bottom - window.top + 1, window.right - window.left + 1},
          crop_,
          crop_};
    }
    Stretch rows(window.top, window.bottom);
    Stretch columns(window.left, window.right);
    if (square) rows.half = columns.half = std::max(rows.half, columns.half);
    const float factor = static_cast<float>(crop_) /
                         static_cast<float>(crop_ - 2 * int64_t{parameter_.context_pad()});
    const Part vertical = Expand(rows, factor, image[1], crop_);
    const Part horizontal = Expand(columns, factor, image[2], crop_);
    if (vertical.pixels < 1 || horizontal.pixels < 1) FailOutside(window, image);
    const int64_t left = mirror ? horizontal.after : horizontal.before;
    return {{vertical.first, horizontal.first, vertical.pixels, horizontal.pixels},
            std::min(vertical.extent, crop_ - vertical.before),
            std::min(horizontal.extent, crop_ - left),
            vertical.before,
            left};
  }

  void Fill(const ByteImage& image, const Placement& place, bool mirror,
            std::span<float> out) const {
    if (place.height < 1 || place.width < 1) return;
    const ByteImage scaled = ResizeRegion(image, place.from, place.height, place.width);
    const auto* row = reinterpret_cast<const uint8_t*>(scaled.bytes.data());
    for (int64_t channel = 0; channel < kChannels; ++channel) {
      for (int64_t y = 0; y < place.height; ++y, row += place.width) {
        const int64_t begin = (channel * crop_ + place.top + y) * crop_ + place.left;
        for (int64_t x = 0; x < place.width; ++x) {
          const float mean = mean_.empty() ? 0 : mean_[begin + x];
          const auto pixel = static_cast<float>(row[mirror ? place.width - 1 - x : x]);
          out[begin + x] = (pixel - mean) * scale_;
        }
      }
    }
  }

  caffe::WindowDataParameter parameter_;
  caffe::TransformationParameter transform_;
  int64_t crop_;
  float scale_;
  WindowList list_;
  std::vector<std::optional<std::string>> files_;  // read so far, where they are kept; by image
  std::vector<float> mean_;                        // of the shape of a sample, or none
};

}  // namespace

std::unique_ptr<SampleSource> MakeWindowSource(const LayerDescription& layer) {
  return std::make_unique<WindowSource>(layer);
}

Shape WindowShape(const caffe::LayerParameter& layer) {
  const int64_t crop = layer.transform_param().crop_size();
  return {kChannels, crop, crop};
}

}  // namespace poseidon
