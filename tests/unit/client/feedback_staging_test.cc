// KV pairs packed on a device with error feedback, against core's Encode on the host: random
// layers, blobs and KV pairs, which may have floats of several layers.
#include "client/staging/feedback_staging.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "core/random.h"
#include "device/host_device.h"

namespace poseidon {
namespace {

using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;

float RandomFloat(Random& random) { return static_cast<float>(random.Uniform() - 0.5); }

// A layer's gradient in blobs of any sizes, also none.
std::vector<std::span<float>> Cut(std::span<float> layer, Random& random) {
  std::vector<std::span<float>> blobs;
  while (random.Chance(0.6)) {
    const size_t size = random.Below(layer.size() + 1);
    blobs.push_back(layer.first(size));
    layer = layer.subspan(size);
  }
  blobs.push_back(layer);
  return blobs;
}

// A KV pair as it is on the host, and as it should be.
struct Pair {
  size_t begin = 0;  // among all layers' floats
  int layer = 0;     // of its first float
  size_t offset = 0;
  Floats residual;
  Bytes bytes;
  Floats expected_residual;
};

// Some layers are not packed; of the others each run of several is cut at random.
std::vector<Pair> RandomPairs(const Codec& codec, const std::vector<size_t>& layers,
                              std::vector<bool>& packed, Random& random) {
  std::vector<Pair> pairs;
  size_t begin = 0;
  for (size_t l = 0; l < layers.size();) {
    size_t left = 0;
    const bool run_is_packed = random.Chance(0.7);
    const size_t first = l;
    const size_t first_begin = begin;
    for (uint64_t run = 1 + random.Below(3); run > 0 && l < layers.size(); --run) {
      packed.push_back(run_is_packed);
      left += layers[l++];
    }
    const size_t most = 1 + random.Below(random.Chance(0.5) ? 40 : 3000);
    for (; run_is_packed && left > 0; left -= pairs.back().residual.size()) {
      Pair& pair = pairs.emplace_back();
      pair.begin = begin;
      pair.layer = static_cast<int>(first);
      pair.offset = begin - first_begin;
      while (pair.offset >= layers[pair.layer]) pair.offset -= layers[pair.layer++];
      pair.residual.resize(std::min(most, left));
      for (float& owed : pair.residual) owed = RandomFloat(random);
      pair.expected_residual = pair.residual;
      pair.bytes.resize(EncodedBytes(codec, static_cast<int64_t>(pair.residual.size())));
      begin += pair.residual.size();
    }
    begin += left;
  }
  return pairs;
}

class FeedbackStageTest : public testing::TestWithParam<int> {};

TEST_P(FeedbackStageTest, PacksTheHostsBytes) {
  Random random(GetParam());
  const Codec codecs[] = {{.type = CodecType::kOneBit},
                          {.type = CodecType::kTopK, .top_k_share = 0.1},
                          {.type = CodecType::kInt8}};
  const Codec codec = codecs[random.Below(std::size(codecs))];
  std::vector<size_t> layers(1 + random.Below(8));
  size_t floats = 0;
  for (size_t& size : layers) floats += size = 1 + random.Below(random.Chance(0.5) ? 10 : 4000);
  std::vector<bool> packed;  // by layer
  std::vector<Pair> pairs = RandomPairs(codec, layers, packed, random);
  std::vector<PackedChunk> chunks;
  for (Pair& pair : pairs) {
    chunks.push_back(
        {codec, pair.layer, static_cast<int64_t>(pair.offset), pair.residual, pair.bytes});
  }

  Floats gradient(floats);  // the device's
  std::vector<std::span<float>> whole;
  std::vector<std::vector<std::span<float>>> blobs;
  for (size_t begin = 0; const size_t size : layers) {
    whole.push_back(std::span(gradient).subspan(begin, size));
    // What sends factors has no gradient.
    blobs.push_back(packed[blobs.size()] ? Cut(whole.back(), random)
                                         : std::vector<std::span<float>>());
    begin += size;
  }
  std::atomic<uint64_t> copies = 0;
  HostDevice::Options options;
  options.before_copy = [&, seed = random.Next()](CopyDirection, size_t) {
    std::this_thread::sleep_for(std::chrono::microseconds(DeriveSeed(seed, ++copies) % 50));
  };
  HostDevice device(options);
  HostGradientPacker packer(device);
  FeedbackStaging stage(chunks, {&device, &packer}, blobs);
  EXPECT_EQ(stage.empty(), pairs.empty());
  const DeviceStream stream = device.copy_stream(CopyDirection::kToHost);
  const DeviceStream compute = device.MakeStream();
  const std::unique_ptr<DeviceEvent> there = device.MakeEvent();
  std::vector<int> bucket;

  for (int iteration = 0; iteration < 4; ++iteration) {
    Floats next(floats);
    for (float& value : next) value = RandomFloat(random);
    std::vector<int> order(layers.size());
    for (size_t l = 0; l < order.size(); ++l) order[l] = static_cast<int>(order.size() - 1 - l);
    if (random.Chance(0.5)) std::swap(order.front(), order.back());
    for (const int layer : order) {
      const float* const from = next.data() + (whole[layer].data() - gradient.data());
      device.Run(compute, [=, to = whole[layer]] { std::copy_n(from, to.size(), to.begin()); });
      device.Record(*there, compute);
      bucket.push_back(layer);
      if (random.Chance(0.4)) continue;
      stage.Send(bucket, *there);
      bucket.clear();
    }
    stage.Send(std::exchange(bucket, {}), *there);
    const bool read = random.Chance(0.5);
    for (int l = 0; read && l < static_cast<int>(layers.size()); ++l) {
      stage.CopyToHost(l);
      EXPECT_FALSE(stage.CopyToHost(l)) << "it is there";
    }
    device.Synchronize(stream);
    device.Synchronize(compute);  // what nobody sends, too, is made of `next`
    device.Check();
    for (Pair& pair : pairs) {
      Bytes expected(pair.bytes.size());
      Encode(codec, std::span(next).subspan(pair.begin, pair.residual.size()),
             pair.expected_residual, expected);
      EXPECT_EQ(pair.bytes, expected);
      if (read) {
        EXPECT_EQ(pair.residual, pair.expected_residual);
      }
    }
  }
}

// The second bucket is packed while the first is copied, which waits for that here; the third not
// before the first has left its place.
TEST(FeedbackStagingTest, PacksWhileItCopies) {
  constexpr size_t kFloats = 100;
  constexpr int kLayers = 3;
  const Codec codec{.type = CodecType::kInt8};
  std::promise<void> second_is_packed;
  std::atomic<int> packed = 0, copied = 0;
  std::atomic<bool> in_time = false;
  HostDevice::Options options;
  options.before_copy = [&](CopyDirection, size_t bytes) {
    if (bytes == kFloats * sizeof(float)) return;  // a residual
    if (copied++ > 0) return;
    in_time = second_is_packed.get_future().wait_for(std::chrono::seconds(30)) ==
              std::future_status::ready;
    EXPECT_EQ(packed, 2) << "the third was packed over what is being copied";
  };
  HostDevice device(options);
  HostGradientPacker packer(device);
  std::vector<Floats> gradients(kLayers, Floats(kFloats, 1.0F)), residuals = gradients;
  std::vector<Bytes> bytes(kLayers, Bytes(EncodedBytes(codec, kFloats)));
  std::vector<PackedChunk> chunks;
  std::vector<std::vector<std::span<float>>> blobs;
  for (int l = 0; l < kLayers; ++l) {
    blobs.push_back({gradients[l]});
    chunks.push_back({codec, l, 0, residuals[l], bytes[l]});
  }
  FeedbackStaging stage(chunks, {&device, &packer}, blobs);
  const std::unique_ptr<DeviceEvent> there = device.MakeEvent();
  for (int l = 0; l < kLayers; ++l) {
    stage.Send({&l, 1}, *there);
    device.Run(device.packing_stream(), [&] {
      if (++packed == 2) second_is_packed.set_value();
    });
  }
  device.Synchronize(device.copy_stream(CopyDirection::kToHost));
  device.Check();
  EXPECT_TRUE(in_time);
  EXPECT_EQ(bytes[0], bytes[1]);
}

INSTANTIATE_TEST_SUITE_P(Seeds, FeedbackStageTest, testing::Range(0, 40));

}  // namespace
}  // namespace poseidon
