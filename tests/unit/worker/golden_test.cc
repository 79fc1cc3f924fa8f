// Our layers, solver updates and trainings against what BVLC Caffe computed: the files in
// tests/golden, whose README.md says how they were made.
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/net/upgrade.h"
#include "client/deferred/deferred_update.h"
#include "core/arithmetic/update_rule.h"
#include "proto/text_format.h"
#include "proto/update_rule_message.h"
#include "tests/golden/records.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/worker/torch_layer_testing.h"
#include "worker/pass_schedule.h"
#include "worker/torch/torch_engine.h"

namespace poseidon {
namespace {

using Floats = std::vector<float>;

constexpr const char* kDirectory = "tests/golden";

std::vector<std::filesystem::path> FilesIn(const std::string& folder, const std::string& suffix) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(kDirectory) / folder)) {
    if (entry.path().extension() == suffix) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

caffe::NetParameter ReadGolden(const std::filesystem::path& path) {
  caffe::NetParameter golden;
  ReadBinaryFile(path.string(), golden);
  return golden;
}

at::Tensor ToTensor(const google::protobuf::RepeatedField<float>& values, const Shape& shape) {
  at::Tensor tensor = at::empty(shape);
  std::copy(values.begin(), values.end(), tensor.data_ptr<float>());
  return tensor;
}

// --- Layers. ---

// A layer as Caffe ran it: its blobs are the bottoms, the parameters before, the tops, the
// parameters after.
class GoldenLayer {
 public:
  explicit GoldenLayer(const caffe::LayerParameter& golden) : golden_(golden) {
    const int bottoms = golden.bottom_size();
    const int tops = golden.top_size();
    const int parameters = (golden.blobs_size() - bottoms - tops) / 2;
    bottoms_ = {0, bottoms};
    parameters_ = {bottoms, parameters};
    tops_ = {bottoms + parameters, tops};
    after_ = {bottoms + parameters + tops, parameters};
  }

  // Runs our layer with blobs in a memory format that the engine may have them in.
  void Check(at::MemoryFormat format) const {
    const LayerDescription description = Describe();
    ASSERT_EQ(static_cast<int>(description.parameters.size()), parameters_.count);

    const std::vector<bool> wanted(golden_.propagate_down().begin(),
                                   golden_.propagate_down().end());
    const bool learns = golden_.type() != "BatchNorm";
    const auto layer =
        MakeTorchLayer({.description = description,
                        .bottom_needs_gradient = wanted,
                        .parameter_needs_gradient = std::vector<bool>(parameters_.count, learns)});
    const Tensors parameters = Data(parameters_, at::MemoryFormat::Contiguous);
    const Tensors tops = layer->Forward({}, Data(bottoms_, format), parameters);
    ExpectSame(tops, Data(tops_, format), "top");
    const bool wants_gradient = std::find(wanted.begin(), wanted.end(), true) != wanted.end() ||
                                (learns && parameters_.count > 0);
    // Silence has no top that a gradient could come from.
    if (wants_gradient && !tops.empty()) CheckBackward(*layer, wanted, learns, format);
    ExpectSame(parameters, Data(after_, at::MemoryFormat::Contiguous), "parameter after");
  }

 private:
  struct Range {
    int first = 0;
    int count = 0;
  };

  LayerDescription Describe() const {
    caffe::NetParameter net;
    for (int i = 0; i < bottoms_.count; ++i) {
      caffe::LayerParameter& input = *net.add_layer();
      input.set_name(golden_.bottom(i));
      input.set_type("Input");
      input.add_top(golden_.bottom(i));
      caffe::BlobShape& shape = *input.mutable_input_param()->add_shape();
      for (const int64_t extent : BlobProtoShape(golden_.blobs(i))) shape.add_dim(extent);
    }
    *net.add_layer() = golden_;
    net.mutable_layer()->rbegin()->clear_blobs();
    return DescribeNet(net, golden_.phase()).layers.back();
  }

  void CheckBackward(TorchLayer& layer, const std::vector<bool>& wanted, bool learns,
                     at::MemoryFormat format) const {
    ParameterGradients gradients;
    for (const at::Tensor& parameter : Data(parameters_, at::MemoryFormat::Contiguous)) {
      gradients.blobs.push_back(learns ? at::full_like(parameter, 77) : at::Tensor());
    }
    const Tensors found = layer.Backward(Gradients(tops_, format), gradients);
    const Tensors expected = Gradients(bottoms_, format);
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i]) ExpectSame({found[i]}, {expected[i]}, "gradient of bottom", i);
    }
    if (learns) {
      ExpectSame(gradients.blobs, Gradients(after_, at::MemoryFormat::Contiguous),
                 "gradient of parameter");
    }
  }

  Tensors Data(Range range, at::MemoryFormat format) const {
    Tensors tensors;
    for (int i = 0; i < range.count; ++i) {
      const caffe::BlobProto& blob = golden_.blobs(range.first + i);
      tensors.push_back(InFormat(ToTensor(blob.data(), BlobProtoShape(blob)), format));
    }
    return tensors;
  }

  Tensors Gradients(Range range, at::MemoryFormat format) const {
    Tensors tensors;
    for (int i = 0; i < range.count; ++i) {
      const caffe::BlobProto& blob = golden_.blobs(range.first + i);
      tensors.push_back(InFormat(ToTensor(blob.diff(), BlobProtoShape(blob)), format));
    }
    return tensors;
  }

  static at::Tensor InFormat(const at::Tensor& tensor, at::MemoryFormat format) {
    return tensor.dim() == 4 ? tensor.contiguous(format) : tensor;
  }

  // An undefined gradient is zero.
  static void ExpectSame(const Tensors& actual, const Tensors& expected, const std::string& what,
                         size_t first = 0) {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    for (size_t i = 0; i < actual.size(); ++i) {
      const at::Tensor& found = actual[i].defined() ? actual[i] : at::zeros_like(expected[i]);
      ExpectClose(found, expected[i].to(at::kDouble), 1e-5, what + " " + std::to_string(first + i));
    }
  }

  const caffe::LayerParameter& golden_;
  Range bottoms_;
  Range parameters_;
  Range tops_;
  Range after_;
};

TEST(GoldenTest, Layers) {
  int layers = 0;
  for (const std::filesystem::path& path : FilesIn("layers", ".binaryproto")) {
    const caffe::NetParameter golden = ReadGolden(path);
    for (const caffe::LayerParameter& layer : golden.layer()) {
      SCOPED_TRACE(layer.type() + ", " + layer.name());
      ++layers;
      for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
        try {
          GoldenLayer(layer).Check(format);
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
          break;
        }
      }
    }
  }
  EXPECT_GT(layers, 100);
}

// --- Solvers and trainings. ---

// A solver of ours that starts where Caffe's did.
class GoldenSolver {
 public:
  GoldenSolver(const std::filesystem::path& path, const std::string& data)
      : golden_(ReadGolden(std::filesystem::path(path).replace_extension(".binaryproto"))) {
    TorchEngineOptions options;
    options.solver = LoadSolver(path.string());
    for (caffe::LayerParameter& layer : *options.solver.train.net.mutable_layer()) {
      if (layer.type() != "Data") continue;
      layer.mutable_data_param()->set_source(data + layer.data_param().source());
    }
    options.shuffle = false;
    parameter_ = options.solver.parameter;
    engine_ = MakeTorchEngine(options);
    model_ = engine_->model();
    if (parameter_.clip_gradients() >= 0) model_.mutable_update_rule()->set_deferred(true);
    rule_ = ToUpdateRule(model_.update_rule());
    MakeMemory();
    SetValues();
  }

  // Trains to the end; compares every loss and what Caffe recorded.
  void Check() {
    const Floats losses = ToValues(FindLayer("losses").blobs(0));
    ASSERT_EQ(static_cast<int>(losses.size()), parameter_.max_iter());
    ExpectValues(0);
    for (int iteration = 0; iteration < parameter_.max_iter(); ++iteration) {
      EXPECT_NEAR(Iterate(iteration), losses[iteration], 1e-4 * losses[iteration])
          << "iteration " << iteration;
      Update(iteration);
      ExpectValues(iteration + 1);
    }
  }

 private:
  void MakeMemory() {
    for (int layer = 0; layer < model_.layers_size(); ++layer) {
      size_t count = 0;
      for (const BlobSpec& blob : model_.layers(layer).blobs()) count += CountOf(blob);
      values_.emplace_back(count);
      gradients_.emplace_back(count);
      state_.emplace_back(count * static_cast<size_t>(OptimizerStatePerParameter(rule_)));
    }
    for (int layer = 0; layer < model_.layers_size(); ++layer) {
      engine_->BindParameters(layer, values_[layer]);
    }
  }

  static size_t CountOf(const BlobSpec& blob) {
    return Count(Shape(blob.shape().begin(), blob.shape().end()));
  }

  // Caffe's first values.
  void SetValues() {
    NetValues values;
    for (const LayerDescription& layer : engine_->net()->layers) {
      values.emplace_back();
      if (layer.parameters.empty()) continue;
      for (const caffe::BlobProto& blob : FindLayer("0/" + layer.name()).blobs()) {
        values.back().push_back(ToValues(blob));
      }
    }
    engine_->SetValues(values);
  }

  const caffe::LayerParameter* TryLayer(const std::string& name) const {
    for (const caffe::LayerParameter& layer : golden_.layer()) {
      if (layer.name() == name) return &layer;
    }
    return nullptr;
  }

  const caffe::LayerParameter& FindLayer(const std::string& name) const {
    const caffe::LayerParameter* layer = TryLayer(name);
    CHECK(layer != nullptr) << name;
    return *layer;
  }

  // The mean loss; leaves the mean gradient.
  float Iterate(int64_t iteration) {
    const int passes = parameter_.iter_size();
    std::vector<Floats> sums = gradients_;
    for (Floats& sum : sums) std::fill(sum.begin(), sum.end(), 0.0F);
    float loss = 0;
    for (int pass = 0; pass < passes; ++pass) {
      engine_->LoadBatch(iteration * passes + pass);
      for (int step = 0; step < engine_->steps(); ++step) engine_->Forward(step);
      loss += engine_->loss() / static_cast<float>(passes);
      for (int step = engine_->steps() - 1; step >= 0; --step) {
        const std::optional<int> layer = engine_->layer_of_step(step);
        GradientBuffers target;
        if (layer) target.dense = gradients_[*layer];
        engine_->Backward(step, target);
      }
      for (size_t layer = 0; layer < sums.size(); ++layer) {
        for (size_t i = 0; i < sums[layer].size(); ++i) sums[layer][i] += gradients_[layer][i];
      }
    }
    gradients_ = sums;
    return loss;
  }

  void Update(int64_t iteration) {
    const float scale = 1.0F / static_cast<float>(parameter_.iter_size());
    for (int layer = 0; layer < model_.layers_size(); ++layer) {
      size_t begin = 0;
      const auto stride = static_cast<size_t>(OptimizerStatePerParameter(rule_));
      for (const BlobSpec& blob : model_.layers(layer).blobs()) {
        const size_t count = CountOf(blob);
        poseidon::Update(
            {rule_, iteration, {.lr = blob.lr_mult(), .decay = blob.decay_mult()}, scale},
            std::span(gradients_[layer]).subspan(begin, count),
            std::span(values_[layer]).subspan(begin, count),
            std::span(state_[layer]).subspan(begin * stride, count * stride));
        begin += count;
      }
    }
    if (!rule_.deferred) return;
    DeferredUpdate deferred(model_, {.clip_gradients = parameter_.clip_gradients(), .lars = {}});
    deferred.Begin(parameter_.iter_size(),
                   [&](int layer) { return std::span<const float>(state_[layer]); });
    for (int layer = 0; layer < model_.layers_size(); ++layer) {
      deferred.Apply(rule_, layer, iteration, values_[layer], state_[layer]);
    }
  }

  // What Caffe had after so many updates, where it was recorded.
  void ExpectValues(int iteration) const {
    const NetValues values = engine_->Values();
    const NetDescription& net = *engine_->net();
    for (size_t layer = 0; layer < net.layers.size(); ++layer) {
      const caffe::LayerParameter* golden =
          TryLayer(std::to_string(iteration) + "/" + net.layers[layer].name());
      if (golden == nullptr) continue;
      for (int blob = 0; blob < golden->blobs_size(); ++blob) {
        if (net.layers[layer].parameters[blob].owner) continue;
        const Shape shape = BlobProtoShape(golden->blobs(blob));
        at::Tensor found = at::empty(shape);
        ASSERT_EQ(static_cast<int64_t>(values[layer][blob].size()), found.numel());
        std::copy(values[layer][blob].begin(), values[layer][blob].end(), found.data_ptr<float>());
        ExpectClose(found, ToTensor(golden->blobs(blob).data(), shape).to(at::kDouble), 1e-4,
                    golden->name() + " blob " + std::to_string(blob));
      }
    }
  }

  caffe::NetParameter golden_;
  caffe::SolverParameter parameter_;
  std::unique_ptr<Engine> engine_;
  ModelSpec model_;
  UpdateRule rule_;
  std::vector<Floats> values_;  // by layer of the model
  std::vector<Floats> gradients_;
  std::vector<Floats> state_;
};

TEST(GoldenTest, Solvers) {
  const TemporaryDirectory data;
  for (const GoldenRecords& records : kGoldenRecords) {
    WriteRecords(records, data.path() + "/" + records.name);
  }
  int solvers = 0;
  for (const std::filesystem::path& path : FilesIn("solvers", ".prototxt")) {
    SCOPED_TRACE(path.stem().string());
    ++solvers;
    try {
      GoldenSolver(path, data.path() + "/").Check();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
  EXPECT_GT(solvers, 40);
}

// --- Nets of older formats. ---

TEST(GoldenTest, Upgrades) {
  int nets = 0;
  for (const std::filesystem::path& path : FilesIn("upgrade", ".prototxt")) {
    SCOPED_TRACE(path.stem().string());
    ++nets;
    caffe::NetParameter net;
    ReadTextFile(path.string(), net);
    UpgradeNet(net, [](const std::string&) { return Location{}; });
    std::string differences;
    google::protobuf::util::MessageDifferencer differencer;
    differencer.ReportDifferencesToString(&differences);
    EXPECT_TRUE(differencer.Compare(
        ReadGolden(std::filesystem::path(path).replace_extension(".binaryproto")), net))
        << differences;
  }
  EXPECT_GT(nets, 4);
}

}  // namespace
}  // namespace poseidon
