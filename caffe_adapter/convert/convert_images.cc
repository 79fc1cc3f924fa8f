// Lists of image files, and the mean of a database.
#include <algorithm>
#include <cctype>
#include <filesystem>

#include "caffe_adapter/convert/convert.h"
#include "caffe_adapter/convert/dataset_writer.h"
#include "caffe_adapter/convert/extents.h"
#include "caffe_adapter/convert/record_count.h"
#include "caffe_adapter/data/dataset.h"
#include "caffe_adapter/data/image_file.h"
#include "caffe_adapter/data/image_list.h"
#include "caffe_adapter/data/mean_image.h"
#include "caffe_adapter/files/file.h"
#include "core/atomic_file.h"
#include "core/error.h"
#include "core/random.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;

// "jpg" of "a/b.JPG"; "jpeg" is "jpg", too.
std::string TypeOf(const std::string& path) {
  std::string type = fs::path(path).extension().string();
  if (!type.empty()) type.erase(0, 1);
  std::transform(type.begin(), type.end(), type.begin(),
                 [](unsigned char letter) { return std::tolower(letter); });
  return type == "jpeg" ? "jpg" : type;
}

// The file's own bytes serve where nothing about the image changes.
bool KeepsFile(const ImagesetOptions& options, const std::string& path, const std::string& type,
               const ByteImage& image) {
  if (options.resize_height > 0 || TypeOf(path) != type) return false;
  return DecodeImage(ReadFile(path), ImageChannels::kAsStored, path).shape == image.shape;
}

caffe::Datum ToDatum(const ImagesetOptions& options, const std::string& path,
                     const ByteImage& image) {
  caffe::Datum datum;
  datum.set_channels(static_cast<int>(image.shape[0]));
  datum.set_height(static_cast<int>(image.shape[1]));
  datum.set_width(static_cast<int>(image.shape[2]));
  if (!options.encoded && options.encode_type.empty()) {
    datum.set_data(image.bytes);
    return datum;
  }
  const std::string type = options.encode_type.empty() ? TypeOf(path) : options.encode_type;
  datum.set_encoded(true);
  datum.set_data(KeepsFile(options, path, type, image) ? ReadFile(path) : EncodeImage(image, type));
  return datum;
}

caffe::Datum ReadListed(const ImagesetOptions& options, const ListedImage& listed) {
  const std::string path = options.root_folder + listed.path;
  try {
    const ByteImage image =
        ReadImageFile(path, options.gray ? ImageChannels::kGray : ImageChannels::kColor,
                      options.resize_height, options.resize_width);
    caffe::Datum datum = ToDatum(options, path, image);
    datum.set_label(listed.label);
    return datum;
  } catch (const Error& error) {
    ThrowAs(error.exit_code(),
            options.source + ":" + std::to_string(listed.line) + ": " + error.what());
  }
}

// Images that are not of the first one's size.
struct OtherSizes {
  int64_t count = 0;
  std::string example;  // the first of them

  void Add(const ListedImage& listed, const Shape& shape) {
    if (count == 0) {
      example = listed.path + " (line " + std::to_string(listed.line) + ") is " + ToString(shape);
    }
    ++count;
  }
  std::string Describe(const std::string& source, const Shape& first) const {
    return source + ": " + std::to_string(count) + (count == 1 ? " image is" : " images are") +
           " not of the first one's size, " + ToString(first) + "; " + example +
           ". A net reads them if it crops (crop_size); for one that does not, convert again with "
           "--resize_height and --resize_width";
  }
};

}  // namespace

ConvertResult ConvertImageset(const ImagesetOptions& options) {
  CheckExtents("resize_height", options.resize_height, "resize_width", options.resize_width);
  std::vector<ListedImage> images = ReadImageList(options.source);
  if (options.shuffle) Shuffle(images, options.shuffle_seed);
  DatasetWriter writer(options.out, options.replace ? DatasetWriter::Existing::kReplace
                                                    : DatasetWriter::Existing::kRefuse);
  Shape first;
  OtherSizes others;
  RecordCount count(options.progress, std::ssize(images));
  for (const ListedImage& listed : images) {
    const caffe::Datum datum = ReadListed(options, listed);
    const Shape shape = {datum.channels(), datum.height(), datum.width()};
    if (first.empty()) first = shape;
    if (options.check_size && shape != first) {
      throw DataError(options.source + ":" + std::to_string(listed.line) + ": " + listed.path +
                      " is " + ToString(shape) + ", but the first image " + ToString(first) +
                      "; resize all, or leave out the check if they will be cropped");
    }
    if (shape != first) others.Add(listed, shape);
    writer.Append(datum, listed.path);
    count.Next();
  }
  writer.Finish();
  ConvertResult result;
  result.databases = {{options.out, writer.size(), first}};
  if (others.count > 0) result.warnings.push_back(others.Describe(options.source, first));
  return result;
}

ConvertResult ComputeMean(const std::string& source, const std::string& out,
                          const ConvertProgress& progress) {
  CheckCanWrite(out);
  std::error_code ignored;
  const Dataset dataset(source, fs::exists(source + "/CURRENT", ignored)
                                    ? caffe::DataParameter::LEVELDB
                                    : caffe::DataParameter::LMDB);
  const Shape shape = dataset.record_shape();
  MeanImage mean(shape);
  RecordCount count(progress, dataset.size());
  for (int64_t i = 0; i < dataset.size(); ++i) {
    const caffe::Datum datum = dataset.ReadDecoded(i);
    const Shape own = {datum.channels(), datum.height(), datum.width()};
    if (own != shape) {
      throw DataError(dataset.Describe(i) + ": is " + ToString(own) + ", but the first record " +
                      ToString(shape) + "; only images of one size have a mean");
    }
    mean.Add(datum);
    count.Next();
  }
  mean.Write(out);
  ConvertResult result;
  result.other_files = {out};
  result.channel_means = mean.ChannelMeans();
  return result;
}

}  // namespace poseidon
