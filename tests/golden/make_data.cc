#include <google/protobuf/text_format.h>

#include <algorithm>
#include <boost/make_shared.hpp>
#include <caffe/caffe.hpp>
#include <caffe/layers/memory_data_layer.hpp>
#include <filesystem>
#include <map>
#include <set>

#include "tests/golden/data_cases.h"
#include "tests/golden/data_inputs.h"
#include "tests/golden/golden.h"

namespace poseidon {
namespace {

using Blob = ::caffe::Blob<float>;
using Layer = ::caffe::Layer<float>;

// A layer without bottoms, set up.
class DataRun {
 public:
  explicit DataRun(const DataCase& golden) {
    CHECK(google::protobuf::TextFormat::ParseFromString(golden.fields, &parameter_))
        << golden.type << ", " << golden.setting;
    parameter_.set_name(golden.setting);
    parameter_.set_type(golden.type);
    parameter_.set_phase(golden.training ? ::caffe::TRAIN : ::caffe::TEST);
    for (int i = 0; i < parameter_.top_size(); ++i) {
      tops_.push_back(boost::make_shared<Blob>());
      pointers_.push_back(tops_.back().get());
    }
    layer_ = ::caffe::LayerRegistry<float>::CreateLayer(parameter_);
    layer_->SetUp({}, pointers_);
    for (const auto& top : tops_) shapes_.push_back(top->shape());
    if (golden.type == "MemoryData") Feed();
  }

  void Forward() { layer_->Forward({}, pointers_); }

  const std::vector<Blob*>& tops() const { return pointers_; }
  const ::caffe::LayerParameter& parameter() const { return parameter_; }

  // Adds the tops to `layer`, with the shapes that layers above have seen when they were set up.
  void Save(::caffe::LayerParameter& layer) const {
    for (size_t i = 0; i < tops_.size(); ++i) {
      ::caffe::BlobProto& blob = *layer.add_blobs();
      tops_[i]->ToProto(&blob);
      blob.mutable_shape()->clear_dim();
      for (const int extent : shapes_[i]) blob.mutable_shape()->add_dim(extent);
    }
  }

 private:
  // Four images with their labels.
  void Feed() {
    const int images = 4;
    for (int i = 0; i < images * tops_[0]->count() / tops_[0]->num(); ++i) {
      fed_images_.push_back(FedValue(i));
    }
    for (int i = 0; i < images; ++i) fed_labels_.push_back(FedValue(i));
    static_cast<::caffe::MemoryDataLayer<float>&>(*layer_).Reset(fed_images_.data(),
                                                                 fed_labels_.data(), images);
  }

  ::caffe::LayerParameter parameter_;
  std::vector<boost::shared_ptr<Blob>> tops_;
  std::vector<Blob*> pointers_;
  std::vector<std::vector<int>> shapes_;
  std::vector<float> fed_images_;
  std::vector<float> fed_labels_;
  boost::shared_ptr<Layer> layer_;  // last: it may read ahead into what is above
};

::caffe::LayerParameter Batches(const DataCase& golden) {
  DataRun run(golden);
  ::caffe::LayerParameter layer = run.parameter();
  for (int i = 0; i < golden.batches; ++i) {
    run.Forward();
    run.Save(layer);
  }
  return layer;
}

// The samples of the first top that are different, as one blob, in ascending order.
::caffe::LayerParameter Samples(const DataCase& golden) {
  ::caffe::Caffe::set_random_seed(29);
  DataRun run(golden);
  std::set<std::vector<float>> samples;
  for (int batch = 0; batch < golden.batches; ++batch) {
    run.Forward();
    const Blob& top = *run.tops()[0];
    const int count = top.count() / top.shape(0);
    for (const float* sample = top.cpu_data(); sample < top.cpu_data() + top.count();
         sample += count) {
      samples.emplace(sample, sample + count);
    }
  }
  ::caffe::LayerParameter layer = run.parameter();
  ::caffe::BlobProto& blob = *layer.add_blobs();
  blob.mutable_shape()->add_dim(static_cast<int64_t>(samples.size()));
  for (int axis = 1; axis < run.tops()[0]->num_axes(); ++axis) {
    blob.mutable_shape()->add_dim(run.tops()[0]->shape(axis));
  }
  for (const std::vector<float>& sample : samples) {
    for (const float value : sample) blob.add_data(value);
  }
  return layer;
}

// The windows that are different, in ascending order of their labels and pixels: a blob of samples,
// a blob of labels.
::caffe::LayerParameter Windows(const DataCase& golden) {
  ::caffe::Caffe::set_random_seed(37);
  DataRun run(golden);
  std::set<std::vector<float>> windows;  // the label, then the pixels
  for (int batch = 0; batch < golden.batches; ++batch) {
    run.Forward();
    const Blob& data = *run.tops()[0];
    const int count = data.count() / data.shape(0);
    for (int i = 0; i < data.shape(0); ++i) {
      std::vector<float> window = {run.tops()[1]->cpu_data()[i]};
      const float* const pixels = data.cpu_data() + i * count;
      window.insert(window.end(), pixels, pixels + count);
      windows.insert(window);
    }
  }
  ::caffe::LayerParameter layer = run.parameter();
  for (const auto& top : run.tops()) {
    ::caffe::BlobProto& blob = *layer.add_blobs();
    blob.mutable_shape()->add_dim(static_cast<int64_t>(windows.size()));
    for (int axis = 1; axis < top->num_axes(); ++axis) {
      blob.mutable_shape()->add_dim(top->shape(axis));
    }
  }
  for (const std::vector<float>& window : windows) {
    for (size_t i = 1; i < window.size(); ++i) layer.mutable_blobs(0)->add_data(window[i]);
    layer.mutable_blobs(1)->add_data(window[0]);
  }
  return layer;
}

// Every twentieth quantile of a filler's values.
::caffe::LayerParameter Quantiles(const DataCase& golden) {
  ::caffe::Caffe::set_random_seed(31);
  DataRun run(golden);
  run.Forward();
  const Blob& top = *run.tops()[0];
  std::vector<float> values(top.cpu_data(), top.cpu_data() + top.count());
  std::sort(values.begin(), values.end());
  ::caffe::LayerParameter layer = run.parameter();
  ::caffe::BlobProto& blob = *layer.add_blobs();
  constexpr size_t kParts = 20;
  for (size_t i = 1; i < kParts; ++i) blob.add_data(values[i * values.size() / kParts]);
  blob.mutable_shape()->add_dim(blob.data_size());
  return layer;
}

template <typename Run>
void WriteCases(const std::vector<DataCase>& cases, const std::string& folder, Run run) {
  std::filesystem::create_directories(folder);
  std::map<std::string, ::caffe::NetParameter> files;
  for (const DataCase& golden : cases) {
    LOG(INFO) << golden.type << ": " << golden.setting;
    ::caffe::NetParameter& file = files[golden.type];
    file.set_name(golden.type);
    *file.add_layer() = run(golden);
  }
  for (const auto& [type, file] : files) WriteMessage(file, folder + type + ".binaryproto");
}

}  // namespace

void MakeDataFiles(const std::string& directory, const std::string& scratch) {
  MakeInputFiles(directory);
  const std::string folder = std::filesystem::absolute(directory).string() + "/";
  std::filesystem::create_directories(scratch + "/inputs");
  const DataInputs inputs(directory + "/data/inputs", scratch + "/inputs");
  const WorkingDirectory there(scratch + "/inputs");
  WriteCases(DataCases(), folder + "data/", Batches);
  WriteCases(RandomDataCases(), folder + "random/", Samples);
  WriteCases(WindowCases(), folder + "random/", Windows);
  WriteCases(FillerCases(), folder + "random/", Quantiles);
}

}  // namespace poseidon
