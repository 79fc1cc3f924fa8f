// KV pairs packed on a GPU with error feedback, through FeedbackStaging, against core's Encode:
// pairs of one layer's floats and of several layers', of many sizes with the same scratch.
#include "client/staging/feedback_staging.h"

#include <future>

#include "device/cuda/cuda_device.h"
#include "device/cuda/gradient_packer.h"
#include "device/pinned_pool.h"
#include "tests/gpu/on_device.h"
#include "tests/unit/core/arithmetic/codec_testing.h"

namespace poseidon {
namespace {

class FeedbackOnGpu : public testing::TestWithParam<Codec> {};

void Await(Device& device, DeviceStream stream) {
  std::promise<void> done;
  device.Notify(stream, [&] { done.set_value(); });
  done.get_future().wait();
  device.Check();
}

TEST_P(FeedbackOnGpu, PacksTheHostsBytes) {
  const Codec codec = GetParam();
  const std::vector<size_t> layers = {70'001, 3, 1'500'000, 1024, 40'000};
  // By their first floats among all; one of 2 MiB, one of a few floats, some of several layers.
  const std::vector<size_t> begins = {0, 1024, 2048, 69'000, 70'003, 594'291, 1'570'000, 1'571'000};
  std::mt19937 random(1);
  const std::unique_ptr<Device> device = MakeCudaDevice(0);
  const std::unique_ptr<GradientPacker> packer = MakeCudaGradientPacker(0);
  const DeviceStream stream = device->copy_stream(CopyDirection::kToHost);
  PinnedPool pool(PinnedFor(*device), 1 << 20);

  std::vector<std::unique_ptr<OnDevice<float>>> memory;
  std::vector<std::vector<std::span<float>>> blobs;
  std::vector<size_t> ends;
  for (const size_t size : layers) {
    memory.push_back(std::make_unique<OnDevice<float>>(Floats(size)));
    const std::span<float> layer = memory.back()->span();
    blobs.push_back({layer.first(size / 3), layer.subspan(size / 3)});
    ends.push_back(size + (ends.empty() ? 0 : ends.back()));
  }
  std::vector<PackedChunk> chunks;
  std::vector<Floats> residuals;
  for (size_t c = 0; c < begins.size(); ++c) {
    const size_t size = (c + 1 < begins.size() ? begins[c + 1] : ends.back()) - begins[c];
    size_t layer = 0;
    while (begins[c] >= ends[layer]) ++layer;
    const std::span<float> residual = pool.Allocate(static_cast<int64_t>(size));
    residuals.push_back(RandomFloats(size, random));
    std::copy(residuals.back().begin(), residuals.back().end(), residual.begin());
    const size_t bytes = EncodedBytes(codec, static_cast<int64_t>(size));
    const auto place = std::as_writable_bytes(pool.Allocate(static_cast<int64_t>(bytes / 4 + 1)));
    chunks.push_back({codec, static_cast<int>(layer),
                      static_cast<int64_t>(begins[c] + layers[layer] - ends[layer]), residual,
                      place.first(bytes)});
  }
  const std::unique_ptr<DeviceEvent> there = device->MakeEvent();
  FeedbackStaging stage(chunks, {device.get(), packer.get()}, blobs);
  for (int iteration = 0; iteration < 3; ++iteration) {
    Floats gradient;
    for (size_t l = layers.size(); l-- > 0;) {
      const Floats of_layer = RandomFloats(layers[l], random);
      gradient.insert(gradient.begin(), of_layer.begin(), of_layer.end());
      CheckCuda(
          cudaMemcpyAsync(memory[l]->span().data(), of_layer.data(), layers[l] * sizeof(float),
                          cudaMemcpyHostToDevice, static_cast<cudaStream_t>(stream)),
          "copy");
      device->Record(*there, stream);
      const int layer = static_cast<int>(l);
      stage.Send({&layer, 1}, *there);
    }
    if (iteration == 2) {
      for (int l = 0; l < static_cast<int>(layers.size()); ++l) stage.CopyToHost(l);
    }
    Await(*device, stream);
    for (size_t c = 0; c < chunks.size(); ++c) {
      Bytes expected(chunks[c].bytes.size());
      Encode(codec, std::span(gradient).subspan(begins[c], residuals[c].size()), residuals[c],
             expected);
      ASSERT_EQ(Bytes(chunks[c].bytes.begin(), chunks[c].bytes.end()), expected) << "pair " << c;
    }
  }
  for (size_t c = 0; c < chunks.size(); ++c) {
    const std::span<float> host = chunks[c].residual;
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(Floats(host.begin(), host.end()), residuals[c]));
  }
}

INSTANTIATE_TEST_SUITE_P(Codecs, FeedbackOnGpu,
                         testing::Values(Codec{.type = CodecType::kOneBit},
                                         Codec{.type = CodecType::kInt8},
                                         Codec{.type = CodecType::kTopK, .top_k_share = 0.01}));

}  // namespace
}  // namespace poseidon
