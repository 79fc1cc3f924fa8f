// How fast codecs pack and add, against copying the same floats.
//
//   bench_codec [Google Benchmark's flags, such as --benchmark_filter=Encode/fp16]
//
// One thread packs (Encode, with the codec's error feedback and EncodePlain, without) or adds
// (AddDecoded) chunks of 64 KiB and 2 MiB of gradients. Gradients are normally distributed, half of
// them 0 as behind a ReLU. A chunk's vectors are used again and again, so 64 KiB come from the
// caches, as data does that the network stack or the backward pass has just left; 2 MiB partly.
//
// Each call is timed beside a memcpy of as many floats, call by call, so that a busy neighbor hits
// both alike. Printed are, beside the mean time of a call, GB/s (10^9) of unpacked floats and how
// many times as long as the memcpy the call took, both of the medians.
#include "core/arithmetic/codec.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace poseidon {
namespace {

std::vector<float> Gradients(size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> value;
  std::vector<float> gradients(count);
  for (float& gradient : gradients) gradient = random() % 2 == 0 ? 0.0F : value(random);
  return gradients;
}

double SecondsOf(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  benchmark::ClobberMemory();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double Median(std::vector<double>& seconds) {
  const auto middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

void Compare(benchmark::State& state, const std::function<void()>& work) {
  const auto bytes = static_cast<size_t>(state.range(0));
  const std::vector<char> from(bytes, 1);
  std::vector<char> to(bytes);
  std::vector<double> copying, working;
  for ([[maybe_unused]] auto _ : state) {
    copying.push_back(SecondsOf([&] { std::memcpy(to.data(), from.data(), bytes); }));
    working.push_back(SecondsOf(work));
    state.SetIterationTime(working.back());
  }
  const double median = Median(working);
  state.counters["GB/s"] = static_cast<double>(bytes) / median / 1e9;
  state.counters["memcpys"] = median / Median(copying);
}

struct Chunk {
  Chunk(const Codec& spec, size_t bytes)
      : gradients(Gradients(bytes / sizeof(float))),
        residual(gradients.size()),
        encoded(EncodedBytes(spec, static_cast<int64_t>(gradients.size()))) {}
  std::vector<float> gradients, residual;
  std::vector<std::byte> encoded;
};

void TimeEncode(benchmark::State& state, const Codec& spec, bool feedback) {
  Chunk chunk(spec, static_cast<size_t>(state.range(0)));
  const std::span<float> residual = feedback ? std::span(chunk.residual) : std::span<float>();
  Compare(state, [&] { Encode(spec, chunk.gradients, residual, chunk.encoded); });
}

void TimeAddDecoded(benchmark::State& state, const Codec& spec) {
  Chunk chunk(spec, static_cast<size_t>(state.range(0)));
  Encode(spec, chunk.gradients, {}, chunk.encoded);
  Compare(state,
          [&] { benchmark::DoNotOptimize(AddDecoded(spec, chunk.encoded, chunk.residual)); });
}

template <typename... Arguments>
void Register(const std::string& name, Arguments&&... arguments) {
  benchmark::RegisterBenchmark(name.c_str(), std::forward<Arguments>(arguments)...)
      ->Arg(64 << 10)
      ->Arg(2 << 20)
      ->UseManualTime();
}

void RegisterAll() {
  const std::pair<const char*, Codec> codecs[] = {
      {"fp32", {CodecType::kFp32}},      {"fp16", {CodecType::kFp16}},
      {"bf16", {CodecType::kBf16}},      {"int8", {CodecType::kInt8}},
      {"one_bit", {CodecType::kOneBit}}, {"top_k", {CodecType::kTopK, 0.01}}};
  for (const auto& [name, spec] : codecs) {
    Register(std::string("Encode/") + name, TimeEncode, spec, true);
    Register(std::string("EncodePlain/") + name, TimeEncode, spec, false);
    Register(std::string("AddDecoded/") + name, TimeAddDecoded, spec);
  }
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  poseidon::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
}
