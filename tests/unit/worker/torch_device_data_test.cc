// Batches of an engine with a device of its own, here one whose memory is the host's and whose
// streams are threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "core/error.h"
#include "device/host_device.h"
#include "proto/text_format.h"
#include "tests/unit/worker/torch_engine_testing.h"
#include "worker/engine/device_of_engine.h"
#include "worker/torch/layers/torch_data_layer.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::chrono::seconds kPatience(30);

// Counts its copies, which none of the threads that compute makes.
class CountingDevice {
 public:
  CountingDevice()
      : device_({.name = "counting device",
                 .before_copy =
                     [this](CopyDirection direction, size_t) {
                       EXPECT_EQ(direction, CopyDirection::kToDevice);
                       EXPECT_NE(std::this_thread::get_id(), computing_);
                       ++copies_;
                     }}),
        of_engine_(device_, DeviceOfEngine::Computes::kOnThread, nullptr, std::nullopt) {}

  EngineDevice* of_engine() { return &of_engine_; }
  int copies() const { return copies_; }

 private:
  std::thread::id computing_ = std::this_thread::get_id();
  std::atomic<int> copies_ = 0;
  HostDevice device_;
  DeviceOfEngine of_engine_;
};

class TorchDeviceDataTest : public TorchEngineTest {
 protected:
  LayerDescription Describe(const std::string& layer) const {
    caffe::NetParameter net;
    ParseText(layer, "net", net);
    return DescribeNet(net, caffe::TRAIN).layers[0];
  }
};

TEST_F(TorchDeviceDataTest, TheEngineComputesTheSameBits) {
  WriteDigits("train", 100, 28, 1);
  for (const TorchEngineOptions& plain : {LeNet(), Options(kClassifier, 7)}) {
    CountingDevice device;
    TorchEngineOptions options = plain;
    options.device = device.of_engine();
    Trainee on_device(options);
    Trainee on_host(plain);
    // Back by two batches, with another share; and back by one, whose next is on its way.
    const std::array<int64_t, 12> batches{0, 1, 2, 3, 4, 3, 4, 5, 6, 6, 7, 7};
    for (size_t i = 0; i < batches.size(); ++i) {
      const auto iteration = static_cast<int64_t>(i);
      if (iteration == 5) {
        for (Trainee* const trainee : {&on_device, &on_host}) {
          trainee->engine().SetShare({.place = 1, .tenures = {{0, 1}, {3, 2}}});
        }
      }
      ASSERT_EQ(on_device.Iterate(batches[i]), on_host.Iterate(batches[i])) << iteration;
      EXPECT_EQ(on_device.gradients, on_host.gradients) << iteration;
      EXPECT_EQ(on_device.engine().FirstNotFinite(), "");  // computes forward again
      EXPECT_EQ(on_device.engine().loss(), on_host.engine().loss());
      on_device.Update(iteration);
      on_host.Update(iteration);
    }
    if (plain.solver.tests.empty()) continue;
    EXPECT_EQ(on_device.engine().Test().loss, on_host.engine().Test().loss);
  }
}

TEST_F(TorchDeviceDataTest, TheNextBatchIsCopiedDuringTheBackwardPass) {
  WriteDigits("train", 100, 10, 1);
  CountingDevice device;
  const auto layer =
      MakeDataLayer(Describe(DataLayer("TRAIN", 20)), {}, {.engine_device = device.of_engine()});
  constexpr int kTops = 2;
  layer->Load(0, 1);
  for (int64_t iteration = 0; iteration < 8; ++iteration) {
    EXPECT_EQ(device.copies(), kTops * (iteration + 1)) << "loading has copied it once more";
    const auto begin = std::chrono::steady_clock::now();
    while (device.copies() < kTops * (iteration + 2)) {
      layer->SendAhead();
      ASSERT_LT(std::chrono::steady_clock::now() - begin, kPatience);
    }
    const at::Tensor labels = layer->Forward({}, {}, {})[1].clone();
    layer->SendAhead();  // there is only one to send
    EXPECT_TRUE(labels.equal(layer->Forward({}, {}, {})[1])) << "the batch has changed in use";
    layer->Load(iteration + 1, iteration + 2);
  }
}

TEST_F(TorchDeviceDataTest, ConstantsAreCopiedOnce) {
  const std::string layer = R"(
    layer { name: 'dummy' type: 'DummyData' top: 'a' top: 'b' dummy_data_param {
            shape { dim: 2 dim: 3 dim: 4 dim: 4 } shape { dim: 2 }
            data_filler { type: 'constant' value: 3 } data_filler { type: 'uniform' max: 9 } } })";
  CountingDevice device;
  const auto on_device = MakeDataLayer(Describe(layer), {}, {.engine_device = device.of_engine()});
  const auto on_host = MakeDataLayer(Describe(layer), {});
  const void* constant = nullptr;
  for (int iteration = 0; iteration < 5; ++iteration) {
    on_device->Load(iteration, iteration + 1);
    on_host->Load(iteration, iteration + 1);
    const Tensors tops = on_device->Forward({}, {}, {});
    const Tensors expected = on_host->Forward({}, {}, {});
    EXPECT_TRUE(tops[0].equal(expected[0]));
    EXPECT_TRUE(tops[1].equal(expected[1]));
    EXPECT_TRUE(constant == nullptr || constant == tops[0].data_ptr()) << "it has moved";
    constant = tops[0].data_ptr();
    EXPECT_EQ(device.copies(), 1 + iteration + 1);
  }
}

// The label of batch 1 is found out about when batch 2 has been read and sent.
TEST_F(TorchDeviceDataTest, NamesTheRecordOfABadLabelAfterThePass) {
  WriteDigits("train", 40, 10, 1);
  std::string few_classes = kClassifier;
  few_classes.replace(few_classes.find("num_output: 10"), 14, "num_output: 9");
  TorchEngineOptions options = Options(few_classes, 4);
  options.shuffle = false;
  // What the host finds in which iteration, the device finds, too.
  std::string expected;
  int64_t found = 0;
  Trainee on_host(options);
  for (; expected.empty(); ++found) {
    try {
      on_host.Forward(found);
    } catch (const DataError& error) {
      expected = error.what();
    }
  }
  EXPECT_THAT(expected, HasSubstr("is 9; the layer has classes 0 to 8"));
  CountingDevice device;
  options.device = device.of_engine();
  Trainee on_device(options);
  Engine& engine = on_device.engine();
  for (int64_t iteration = 0; iteration < found; ++iteration) {
    engine.LoadBatch(iteration);
    for (int step = 0; step < engine.steps(); ++step) engine.Forward(step);
    const auto begin = std::chrono::steady_clock::now();
    while (device.copies() < 2 * (iteration + 2)) {
      engine.Backward(0, {});
      ASSERT_LT(std::chrono::steady_clock::now() - begin, kPatience);
    }
    if (iteration + 1 < found) engine.loss();  // throws nothing
  }
  EXPECT_THAT([&] { engine.loss(); }, ThrowsMessage<DataError>(expected));
  EXPECT_THAT([&] { engine.LoadBatch(found); }, ThrowsMessage<DataError>(expected));
}

}  // namespace
}  // namespace poseidon
