// How fast a GPU updates parameters, adds, and packs gradients, against what its memory can do.
//
//   bench_gpu_kernels
//
// Vectors are of 64 Mi floats (256 MiB), many times the last-level cache. Bandwidth counts the
// bytes that each kernel must read and write. The ceiling is a plain copy of 256 MiB on the device,
// which reads and writes each byte once, the median of as many repetitions. The aim for updates is
// 0.8. TOP_K packs KV pairs of 2 MiB, all in one call, and adds them in a call each. GB/s (10^9),
// by the device's own clock.
#include <algorithm>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "core/error.h"
#include "device/cuda/codec.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/sum.h"
#include "device/cuda/update.h"
#include "tests/bench/gpu_timing.h"

namespace poseidon {
namespace {

constexpr size_t kFloats = size_t{64} << 20U;
constexpr size_t kBytes = kFloats * sizeof(float);
constexpr size_t kPairs = kBytes / (size_t{2} << 20U);
constexpr cudaStream_t kStream = nullptr;

std::span<float> FloatsOf(const DeviceMemory& memory, size_t floats = kFloats) {
  return {reinterpret_cast<float*>(memory.get()), floats};
}

// Random ones, as zeros cost less: they pack to themselves, sort in no time and draw less power.
void Fill(std::span<float> floats) {
  // A piece of so many is repeated, which takes the host a fraction of a second.
  constexpr size_t kPiece = size_t{4} << 20U;
  std::mt19937 random(1);
  std::normal_distribution<float> value;
  std::vector<float> piece(kPiece);
  for (float& f : piece) f = value(random);
  for (size_t first = 0; first < floats.size(); first += kPiece) {
    const size_t count = std::min(kPiece, floats.size() - first);
    CheckCuda(
        cudaMemcpy(&floats[first], piece.data(), count * sizeof(float), cudaMemcpyHostToDevice),
        "fill memory");
  }
}

void BenchUpdates(const std::span<float> gradient, const std::span<float> parameters,
                  const std::span<float> optimizer_state, double ceiling) {
  PrintHeading("GB/s, updates");
  for (const char* type : {"SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"}) {
    UpdateRule rule;
    rule.type = type;
    rule.weight_decay = 0.0005F;
    const int state = OptimizerStatePerParameter(rule);
    const Timings timings = TimeInStream(kStream, [&] {
      cuda::Update({rule, 1, {}, 0.25F}, gradient, parameters,
                   optimizer_state.first(kFloats * state), kStream);
    });
    // Reads the gradient; reads and writes parameters and state.
    PrintRow(type, static_cast<double>(kBytes) * (1 + 2 + 2 * state), timings, ceiling);
  }
}

void BenchSums(std::span<float> accumulator, std::span<float> addend, double ceiling) {
  PrintHeading("GB/s, sums");
  PrintRow("add", 3.0 * kBytes,
           TimeInStream(kStream, [&] { cuda::AddInto(accumulator, addend, kStream); }), ceiling);
  PrintRow("scale", 2.0 * kBytes,
           TimeInStream(kStream, [&] { cuda::Scale(accumulator, 1.0F, kStream); }), ceiling);
}

// That adding must read and write: what is packed once, and the sum's floats twice, of which those
// that TOP_K has left out stay as they are.
double BytesOfAdding(const Codec& spec, size_t packed) {
  constexpr size_t kBytesKept = sizeof(uint32_t) + sizeof(float);
  const size_t floats = spec.type == CodecType::kTopK ? packed / kBytesKept : kFloats;
  return 2.0 * static_cast<double>(floats * sizeof(float)) + static_cast<double>(packed);
}

void BenchCodecs(Device& device, std::span<float> values, std::span<float> residual,
                 double ceiling) {
  PrintHeading("GB/s, codecs");
  const std::pair<const char*, Codec> codecs[] = {{"FP16", {CodecType::kFp16}},
                                                  {"BF16", {CodecType::kBf16}},
                                                  {"INT8", {CodecType::kInt8}},
                                                  {"ONE_BIT", {CodecType::kOneBit}},
                                                  {"TOP_K", {CodecType::kTopK, 0.01}}};
  for (const auto& codec : codecs) {
    const std::string name = codec.first;
    const Codec spec = codec.second;
    // TOP_K has kernels for many KV pairs; the others have one a pair, whose start would count.
    const size_t pairs = spec.type == CodecType::kTopK ? kPairs : 1;
    const size_t floats = kFloats / pairs;
    const size_t bytes = EncodedBytes(spec, static_cast<int64_t>(floats));
    const DeviceMemory memory = device.Allocate(pairs * bytes);
    cuda::CodecScratch scratch(spec, pairs, floats);
    std::vector<Packing> packings;
    for (size_t pair = 0; pair < pairs; ++pair) {
      packings.push_back({values.subspan(pair * floats, floats),
                          residual.subspan(pair * floats, floats),
                          {memory.get() + pair * bytes, bytes}});
    }
    const size_t packed = pairs * bytes;
    // Reads values; reads and writes the residual.
    PrintRow((name + ", packing").c_str(), 3.0 * kBytes + static_cast<double>(packed),
             TimeInStream(kStream, [&] { cuda::Encode(spec, packings, scratch, kStream); }),
             ceiling);
    const auto add = [&] {
      for (const Packing& one : packings) {
        cuda::AddDecoded(spec, one.packed, one.residual, kStream);
      }
    };
    PrintRow((name + ", adding").c_str(), BytesOfAdding(spec, packed), TimeInStream(kStream, add),
             ceiling);
  }
}

void Run() {
  const std::unique_ptr<Device> device = MakeCudaDevice(0);
  const DeviceMemory a = device->Allocate(kBytes), b = device->Allocate(kBytes);
  const DeviceMemory optimizer_state = device->Allocate(2 * kBytes);
  Fill(FloatsOf(a)), Fill(FloatsOf(b));
  // Means of squares, among others, which are not below 0.
  CheckCuda(cudaMemset(optimizer_state.get(), 0, 2 * kBytes), "fill memory");
  const Timings copy = TimeInStream(kStream, [&] {
    CheckCuda(cudaMemcpyAsync(a.get(), b.get(), kBytes, cudaMemcpyDeviceToDevice, kStream), "copy");
  });
  const double ceiling = 2.0 * kBytes / copy.median();
  std::printf("%s; a plain copy: %.1f GB/s read and written\n", device->name().c_str(),
              ceiling / 1e9);
  BenchUpdates(FloatsOf(a), FloatsOf(b), FloatsOf(optimizer_state, 2 * kFloats), ceiling);
  BenchSums(FloatsOf(a), FloatsOf(b), ceiling);
  BenchCodecs(*device, FloatsOf(a), FloatsOf(b), ceiling);
}

}  // namespace
}  // namespace poseidon

int main() {
  try {
    poseidon::Run();
  } catch (const poseidon::Error& error) {
    std::fprintf(stderr, "bench_gpu_kernels: %s\n", error.what());
    return static_cast<int>(error.exit_code());
  }
  return 0;
}
