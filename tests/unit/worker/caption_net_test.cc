// A net that describes images in words, built as LRCN is (Donahue et al., Long-term recurrent
// convolutional networks for visual recognition and description, CVPR 2015): a convolutional net
// whose scores are the static input of the second of two LSTMs, which read the words so far. Its
// batches have images from one data layer and time steps of sentences from another.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "caffe_adapter/convert/dataset_writer.h"
#include "caffe_adapter/files/hdf5_writer.h"
#include "core/random.h"
#include "tests/unit/temporary_directory.h"
#include "worker/torch/torch_engine.h"

namespace poseidon {
namespace {

using Floats = std::vector<float>;

constexpr int kStreams = 6;  // sentences side by side, each of an image of its own
constexpr int kSteps = 6;    // a sentence is up to one word shorter
constexpr int kWords = 8;    // the vocabulary; word 0 ends a sentence
constexpr int kClasses = 3;  // of images
constexpr int kExtent = 31;  // of an image, in pixels

// What is said of an image: two to four words.
std::vector<int> Sentence(int image_class) {
  std::vector<int> words;
  for (int i = 0; i < 2 + image_class; ++i)
    words.push_back(1 + (2 * image_class + i) % (kWords - 1));
  return words;
}

// Noise; the class is which color is bright.
void WriteImages(const std::string& path) {
  DatasetWriter writer(path);
  Random random(1);
  for (int stream = 0; stream < kStreams; ++stream) {
    caffe::Datum datum;
    datum.set_channels(3);
    datum.set_height(kExtent);
    datum.set_width(kExtent);
    for (int i = 0; i < 3 * kExtent * kExtent; ++i) {
      const bool bright = i / (kExtent * kExtent) == stream % kClasses;
      datum.mutable_data()->push_back(static_cast<char>(random.Below(100) + (bright ? 100 : 0)));
    }
    writer.Append(datum);
  }
  writer.Finish();
}

// A row for each time step: what goes on, the words before, the words to say; -1 is nothing to say.
void WriteSentences(const std::string& path) {
  std::array<Floats, 3> rows;
  for (Floats& values : rows) values.assign(size_t{kSteps} * kStreams, 0.0F);
  auto& [goes_on, before, next] = rows;
  std::fill(next.begin(), next.end(), -1.0F);
  for (int stream = 0; stream < kStreams; ++stream) {
    const std::vector<int> words = Sentence(stream % kClasses);
    for (size_t t = 0; t <= words.size(); ++t) {
      const size_t place = t * kStreams + static_cast<size_t>(stream);
      goes_on[place] = t == 0 ? 0.0F : 1.0F;
      before[place] = t == 0 ? 0.0F : static_cast<float>(words[t - 1]);
      next[place] = t == words.size() ? 0.0F : static_cast<float>(words[t]);
    }
  }
  Hdf5Writer writer(path);
  writer.AddFloats("cont_sentence", {kSteps, kStreams}, goes_on);
  writer.AddFloats("input_sentence", {kSteps, kStreams}, before);
  writer.AddFloats("target_sentence", {kSteps, kStreams}, next);
  writer.Write();
}

constexpr char kNet[] = R"(
layer { name: "images" type: "Data" top: "data" include { phase: TRAIN }
        data_param { source: "IMAGES" backend: LMDB batch_size: 6 }
        transform_param { scale: 0.01 mean_value: 50 } }
layer { name: "sentences" type: "HDF5Data" include { phase: TRAIN }
        top: "cont_sentence" top: "input_sentence" top: "target_sentence"
        hdf5_data_param { source: "SENTENCES" batch_size: 6 } }
layer { name: "conv1" type: "Convolution" bottom: "data" top: "conv1"
        convolution_param { num_output: 8 kernel_size: 5 stride: 2 weight_filler { type: "xavier" } } }
layer { name: "relu1" type: "ReLU" bottom: "conv1" top: "conv1" }
layer { name: "pool1" type: "Pooling" bottom: "conv1" top: "pool1"
        pooling_param { pool: MAX kernel_size: 3 stride: 2 } }
layer { name: "norm1" type: "LRN" bottom: "pool1" top: "norm1" }
layer { name: "conv2" type: "Convolution" bottom: "norm1" top: "conv2"
        convolution_param { num_output: 8 kernel_size: 3 group: 2 weight_filler { type: "xavier" } } }
layer { name: "relu2" type: "ReLU" bottom: "conv2" top: "conv2" }
layer { name: "fc8" type: "InnerProduct" bottom: "conv2" top: "fc8"
        inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "embedding" type: "Embed" bottom: "input_sentence" top: "embedded_input_sentence"
        embed_param { bias_term: false input_dim: 8 num_output: 12
                      weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "lstm1" type: "LSTM" bottom: "embedded_input_sentence" bottom: "cont_sentence"
        top: "lstm1"
        recurrent_param { num_output: 16 weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "lstm2" type: "LSTM" bottom: "lstm1" bottom: "cont_sentence" bottom: "fc8" top: "lstm2"
        recurrent_param { num_output: 16 weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "predict" type: "InnerProduct" bottom: "lstm2" top: "predict"
        inner_product_param { num_output: 8 axis: 2
                              weight_filler { type: "uniform" min: -0.3 max: 0.3 } } }
layer { name: "cross_entropy_loss" type: "SoftmaxWithLoss" bottom: "predict"
        bottom: "target_sentence" top: "cross_entropy_loss" include { phase: TRAIN }
        loss_weight: 20 loss_param { ignore_label: -1 } softmax_param { axis: 2 } }
layer { name: "accuracy" type: "Accuracy" bottom: "predict" bottom: "target_sentence"
        top: "accuracy" include { phase: TRAIN } accuracy_param { axis: 2 ignore_label: -1 } }
)";

std::string Replaced(std::string text, const std::string& word, const std::string& by) {
  return text.replace(text.find(word), word.size(), by);
}

// A training with momentum and clipped gradients, as LRCN's solver has them.
class Training {
 public:
  explicit Training(const TorchEngineOptions& options) : engine_(MakeTorchEngine(options)) {
    for (const LayerSpec& layer : engine_->model().layers()) {
      size_t count = 0;
      for (const BlobSpec& blob : layer.blobs()) {
        count += Count(Shape(blob.shape().begin(), blob.shape().end()));
      }
      values_.emplace_back(count);
      gradients_.emplace_back(count);
      history_.emplace_back(count);
    }
    for (size_t i = 0; i < values_.size(); ++i) {
      engine_->BindParameters(static_cast<int>(i), values_[i]);
    }
    engine_->FillParameters();
  }

  // The loss before the step.
  float Iterate(int64_t iteration, float rate) {
    engine_->LoadBatch(iteration);
    for (int step = 0; step < engine_->steps(); ++step) engine_->Forward(step);
    const float loss = engine_->loss();
    for (int step = engine_->steps() - 1; step >= 0; --step) {
      GradientBuffers target;
      if (const auto layer = engine_->layer_of_step(step)) target.dense = gradients_[*layer];
      engine_->Backward(step, target);
    }
    const float scale = std::min(1.0F, kClipGradients / Norm());
    for (size_t layer = 0; layer < values_.size(); ++layer) {
      for (size_t i = 0; i < values_[layer].size(); ++i) {
        history_[layer][i] = 0.9F * history_[layer][i] + rate * scale * gradients_[layer][i];
        values_[layer][i] -= history_[layer][i];
      }
    }
    return loss;
  }

 private:
  static constexpr float kClipGradients = 10;

  // Of all gradients, L2.
  float Norm() const {
    float sum = 0;
    for (const Floats& gradients : gradients_) {
      for (const float gradient : gradients) sum += gradient * gradient;
    }
    return std::sqrt(sum);
  }

  std::unique_ptr<Engine> engine_;
  std::vector<Floats> values_;
  std::vector<Floats> gradients_;
  std::vector<Floats> history_;
};

TEST(CaptionNetTest, LearnsWhatIsSaidOfWhichImages) {
  const TemporaryDirectory directory;
  WriteImages(directory.Path("images"));
  WriteSentences(directory.Path("sentences.h5"));
  const std::string list = directory.Write("sentences.txt", directory.Path("sentences.h5"));
  directory.Write("net.prototxt",
                  Replaced(Replaced(kNet, "IMAGES", directory.Path("images")), "SENTENCES", list));
  TorchEngineOptions options;
  options.solver = LoadSolver(directory.Write(
      "solver.prototxt",
      "net: '" + directory.Path("net.prototxt") + "' base_lr: 1 lr_policy: 'fixed' max_iter: 1"));
  options.shuffle = false;

  constexpr float kRate = 0.004F;
  Training training(options);
  const float first = training.Iterate(0, kRate);
  float last = 0;
  for (int iteration = 1; iteration < 600; ++iteration) {
    last = training.Iterate(iteration, kRate);
  }
  // Words of a sentence follow one another, but which of three it is only the image says. A net
  // that did not see it would have log(3) for each first word, of four words on average: a loss of
  // 20 x 0.27, over an eighth of the first, which is 20 x log(8).
  EXPECT_LT(last, 0.05F * first);
}

}  // namespace
}  // namespace poseidon
