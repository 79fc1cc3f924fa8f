// Our data layers, and what our layers and fillers draw at random, against what BVLC Caffe gave:
// the files in tests/golden/data and tests/golden/random, whose README.md says how they were made.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>

#include "caffe_adapter/data/sample_source.h"
#include "caffe_adapter/net/filler.h"
#include "tests/golden/data_inputs.h"
#include "tests/unit/temporary_directory.h"
#include "tests/unit/worker/torch_layer_testing.h"
#include "worker/torch/layers/torch_data_layer.h"

namespace poseidon {
namespace {

using Floats = std::vector<float>;

// The inputs of the golden data, as the working directory.
class GoldenDataTest : public ::testing::Test {
 protected:
  GoldenDataTest()
      : golden_(std::filesystem::absolute("tests/golden").string()),
        inputs_(golden_ + "/data/inputs", directory_.path()),
        there_(directory_.path()) {}

  // FOLDER/NAME.
  caffe::NetParameter Read(const std::string& name) const {
    caffe::NetParameter golden;
    ReadBinaryFile(golden_ + "/" + name + ".binaryproto", golden);
    return golden;
  }

  // Checks each layer of a file by check(layer, description).
  template <typename Check>
  void CheckAll(const std::string& name, Check check) const {
    const caffe::NetParameter golden = Read(name);
    EXPECT_GT(golden.layer_size(), 0);
    for (const caffe::LayerParameter& layer : golden.layer()) {
      SCOPED_TRACE(layer.type() + ", " + layer.name());
      try {
        caffe::NetParameter net;
        *net.add_layer() = layer;
        net.mutable_layer(0)->clear_blobs();
        check(layer, DescribeNet(net, layer.phase()).layers[0]);
      } catch (const std::exception& error) {
        // A build can do without OpenCV, HDF5 and LevelDB.
        const bool lacking =
            std::string_view(error.what()).find("which this build lacks") != std::string_view::npos;
        EXPECT_TRUE(lacking) << error.what();
      }
    }
  }

 private:
  TemporaryDirectory directory_;
  std::string golden_;
  DataInputs inputs_;
  WorkingDirectory there_;
};

// How far a value may be off. Pixels and floats are computed by the same operations here and in
// Caffe. But what a JPEG's pixels are is not laid down to the last bit, nor is how colors become
// gray or how an image is made smaller: versions of the libraries differ by one level of gray (and
// a little for its rounding).
float Tolerance(const caffe::LayerParameter& layer) {
  const bool decoded = layer.type() == "ImageData" || layer.name().starts_with("encoded");
  return decoded ? 1.001F * std::abs(layer.transform_param().scale()) : 0;
}

void ExpectBlob(const at::Tensor& found, const caffe::BlobProto& golden, float tolerance) {
  ASSERT_EQ(found.sizes().vec(), BlobProtoShape(golden));
  const at::Tensor contiguous = found.contiguous();
  const float* values = contiguous.data_ptr<float>();
  for (int i = 0; i < golden.data_size(); ++i) {
    ASSERT_NEAR(values[i], golden.data(i), tolerance) << "value " << i;
  }
}

// What is fed to MemoryData: four images with their labels, again and again. To Input nothing is
// fed, as in Caffe's run.
void Feed(const LayerDescription& layer, int64_t iteration,
          std::span<const std::span<float>> tops) {
  if (layer.type() != "MemoryData") return;
  constexpr int64_t kImages = 4;
  const auto batch = static_cast<int64_t>(tops[1].size());
  const int64_t values = static_cast<int64_t>(tops[0].size()) / batch;
  for (int64_t i = 0; i < batch; ++i) {
    const int64_t image = (iteration * batch + i) % kImages;
    for (int64_t v = 0; v < values; ++v) tops[0][i * values + v] = FedValue(image * values + v);
    tops[1][i] = FedValue(image);
  }
}

TEST_F(GoldenDataTest, Batches) {
  for (const char* const type :
       {"Data", "ImageData", "HDF5Data", "DummyData", "Input", "MemoryData"}) {
    CheckAll(std::string("data/") + type,
             [&](const caffe::LayerParameter& golden, const LayerDescription& description) {
               const auto layer = MakeDataLayer(description, {.feed = Feed});
               const int tops = golden.top_size();
               ASSERT_GE(golden.blobs_size(), tops);
               for (int batch = 0; batch < golden.blobs_size() / tops; ++batch) {
                 layer->Load(batch, batch + 1);
                 const Tensors found = layer->Forward({}, {}, {});
                 ASSERT_EQ(static_cast<int>(found.size()), tops);
                 for (int top = 0; top < tops; ++top) {
                   SCOPED_TRACE("batch " + std::to_string(batch) + ", top " + std::to_string(top));
                   ExpectBlob(found[top], golden.blobs(batch * tops + top), Tolerance(golden));
                 }
               }
             });
  }
}

// Where Caffe crops and mirrors at random: of one record, ours gives the same samples, no others.
TEST_F(GoldenDataTest, RandomCropsAndMirrors) {
  for (const char* const type : {"Data", "ImageData"}) {
    CheckAll(std::string("random/") + type,
             [&](const caffe::LayerParameter& golden, const LayerDescription& description) {
               const Shape shape = BlobProtoShape(golden.blobs(0));
               const int64_t values = Count(shape, 1, static_cast<int>(shape.size()));
               std::set<Floats> expected;
               for (int64_t i = 0; i < shape[0]; ++i) {
                 const auto begin = golden.blobs(0).data().begin() + i * values;
                 expected.emplace(begin, begin + values);
               }
               // There are at most 12: that one of them is not among 400 has a chance of 1e-14.
               constexpr uint64_t kDraws = 400;
               const auto source = MakeSampleSource(description);
               std::set<Floats> found;
               for (uint64_t seed = 0; seed < kDraws; ++seed) {
                 Floats data(static_cast<size_t>(values));
                 Floats label(1);
                 source->Read(0, seed, std::vector<std::span<float>>{data, label});
                 found.insert(data);
               }
               EXPECT_EQ(found, expected);
             });
  }
}

// Whether some row of `rows` is `row`, up to what versions of OpenCV differ by in scaling.
bool HasNear(const std::vector<Floats>& rows, const Floats& row, float tolerance) {
  return std::any_of(rows.begin(), rows.end(), [&](const Floats& other) {
    return std::equal(row.begin(), row.end(), other.begin(), other.end(),
                      [&](float a, float b) { return std::abs(a - b) <= tolerance; });
  });
}

// All windows that Caffe has cut, with their labels, and no others.
TEST_F(GoldenDataTest, Windows) {
  CheckAll("random/WindowData", [](const caffe::LayerParameter& golden,
                                   const LayerDescription& description) {
    const Shape shape = BlobProtoShape(golden.blobs(0));
    const auto values = static_cast<size_t>(Count(shape) / shape[0]);
    std::vector<Floats> expected;  // the label, then the pixels
    for (int i = 0; i < shape[0]; ++i) {
      expected.push_back({golden.blobs(1).data(i)});
      const auto begin = golden.blobs(0).data().begin() + static_cast<int64_t>(i * values);
      expected.back().insert(expected.back().end(), begin, begin + static_cast<int64_t>(values));
    }
    const auto source = MakeSampleSource(description);
    // Each window is mirrored or not, but for a chance of 2^-29.
    constexpr uint64_t kDraws = 30;
    std::set<Floats> cut;
    for (int64_t record = 0; record < source->records().records; ++record) {
      for (uint64_t seed = 0; seed < kDraws; ++seed) {
        Floats window(1 + values);
        const std::span<float> all(window);
        source->Read(record, seed, std::vector<std::span<float>>{all.subspan(1), all.first(1)});
        cut.insert(window);
      }
    }
    const std::vector<Floats> found(cut.begin(), cut.end());
    const float tolerance = 1.001F * description.parameter.window_data_param().scale();
    EXPECT_EQ(found.size(), expected.size());
    for (const Floats& window : expected) {
      EXPECT_TRUE(HasNear(found, window, tolerance)) << "Caffe's, label " << window[0];
    }
    for (const Floats& window : found) {
      EXPECT_TRUE(HasNear(expected, window, tolerance)) << "ours, label " << window[0];
    }
  });
}

// The same values as Caffe's Dropout with the mask that it drew, which its top shows; and as likely
// a mask.
TEST_F(GoldenDataTest, DropoutInTraining) {
  const caffe::NetParameter layers = Read("random/Dropout");
  for (const caffe::LayerParameter& golden : layers.layer()) {
    SCOPED_TRACE(golden.name());
    const auto tensor = [](const google::protobuf::RepeatedField<float>& values) {
      return at::tensor(at::ArrayRef<float>(values.data(), values.size()));
    };
    const at::Tensor bottom = tensor(golden.blobs(0).data());
    const at::Tensor top_gradient = tensor(golden.blobs(1).diff());
    const at::Tensor expected = tensor(golden.blobs(1).data());
    const at::Tensor expected_gradient = tensor(golden.blobs(0).diff());
    const at::Tensor kept = expected.ne(0);
    at::Tensor same = at::zeros_like(kept);  // where our mask has been Caffe's
    double kept_share = 0;
    constexpr int kPasses = 50;

    const auto layer = MakeTorchLayer(
        {.description = Describe(
             "type: 'Dropout' dropout_param { " + golden.dropout_param().ShortDebugString() + " }",
             {bottom.sizes().vec()}),
         .bottom_needs_gradient = {true},
         .parameter_needs_gradient = {},
         .seed = 3});
    for (int pass = 0; pass < kPasses; ++pass) {
      ParameterGradients none;
      const at::Tensor top = layer->Forward({.iteration = pass}, {bottom}, {})[0];
      const at::Tensor gradient = layer->Backward({top_gradient}, none)[0];
      const at::Tensor alike = top.ne(0).eq(kept);
      ExpectClose(top.mul(alike), expected.mul(alike).to(at::kDouble), 1e-6, "top");
      ExpectClose(gradient.mul(alike), expected_gradient.mul(alike).to(at::kDouble), 1e-6,
                  "gradient");
      same.logical_or_(alike);
      kept_share += top.ne(0).to(at::kDouble).mean().item<double>() / kPasses;
    }
    EXPECT_TRUE(same.all().item<bool>()) << "not each value was checked";
    // Caffe's share is of 300 draws: its deviation is at most 0.029, and five times that is rare.
    EXPECT_NEAR(kept_share, kept.to(at::kDouble).mean().item<double>(), 0.145);
    EXPECT_NEAR(kept_share, 1 - golden.dropout_param().dropout_ratio(), 0.02);
  }
}

// Caffe's quantiles and ours are of 240,000 values each.
TEST_F(GoldenDataTest, Fillers) {
  CheckAll("random/DummyData",
           [](const caffe::LayerParameter& golden, const LayerDescription& description) {
             const google::protobuf::RepeatedField<float>& quantiles = golden.blobs(0).data();
             Floats values(static_cast<size_t>(Count(description.tops[0].shape)));
             Fill(golden.dummy_data_param().data_filler(0), description.tops[0].shape, 41, values);
             std::sort(values.begin(), values.end());
             const float spread = quantiles[quantiles.size() - 1] - quantiles[0];
             ASSERT_GT(spread, 0);
             const size_t parts = static_cast<size_t>(quantiles.size()) + 1;
             for (size_t i = 1; i < parts; ++i) {
               EXPECT_NEAR(values[i * values.size() / parts], quantiles[static_cast<int>(i) - 1],
                           0.01 * spread)
                   << "quantile " << i << " of " << parts;
             }
           });
}

}  // namespace
}  // namespace poseidon
