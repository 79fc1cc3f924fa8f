#include "core/arithmetic/codec.h"

#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <sstream>

#include "core/arithmetic/codec_functions.h"
#include "core/arithmetic/sum.h"
#include "core/error.h"

namespace poseidon {
namespace {

// Of codecs that treat each float alone: 4 KiB of floats stay in the first-level cache from one
// pass over them to the next.
constexpr size_t kElementwiseBlock = 1024;

void AssignFp32(std::span<const std::byte> encoded, std::span<float> x) { CopyFrom(x, encoded); }

void AddFp32(std::span<const std::byte> encoded, std::span<float> x) { AddInto(x, encoded); }

void LoseFp32(std::span<const std::byte> encoded, std::span<float> x) {
  for (size_t i = 0; i < x.size(); ++i) {
    float decoded;
    std::memcpy(&decoded, encoded.data() + i * sizeof(float), sizeof(float));
    x[i] = Lose::Merge(x[i], decoded);
  }
}

void EncodeFp32(std::span<const float> values, std::span<std::byte> out) {
  if (!values.empty()) std::memcpy(out.data(), values.data(), out.size());
}

const CodecFunctions& FunctionsOf(CodecType codec) {
  // In the order of enum CodecType.
  static const std::array<CodecFunctions, 6> functions = {Fp32Functions(),
                                                          Fp16Functions(Instructions::kFastest),
                                                          Bf16Functions(Instructions::kFastest),
                                                          OneBitFunctions(),
                                                          TopKFunctions(Instructions::kFastest),
                                                          Int8Functions(Instructions::kFastest)};
  return functions.at(static_cast<size_t>(codec));
}

// The functions if the bytes can stand for so many floats, else null.
const CodecFunctions* FunctionsFor(const Codec& spec, std::span<const std::byte> encoded,
                                   size_t floats) {
  const CodecFunctions& functions = FunctionsOf(spec.type);
  const bool fits = encoded.size() == functions.encoded_bytes(spec, floats);
  return fits && functions.valid(encoded, floats) ? &functions : nullptr;
}

}  // namespace

CodecFunctions Fp32Functions() {
  return {.encoded_bytes = [](const Codec&, size_t floats) { return floats * sizeof(float); },
          .encode = EncodeFp32,
          .valid = [](std::span<const std::byte>, size_t) { return true; },
          .assign = AssignFp32,
          .add = AddFp32,
          .lose = LoseFp32,
          .block = kElementwiseBlock};
}

void Validate(const Codec& spec) {
  if (spec.top_k_share > 0 && spec.top_k_share <= 1) return;
  std::ostringstream message;
  message << "top_k_share is " << spec.top_k_share << "; it must be above 0 and at most 1";
  throw ConfigError(message.str());
}

size_t EncodedBytes(const Codec& spec, int64_t floats) {
  CHECK_GE(floats, 0);
  return FunctionsOf(spec.type).encoded_bytes(spec, static_cast<size_t>(floats));
}

void Encode(const Codec& spec, std::span<const float> values, std::span<float> residual,
            std::span<std::byte> out) {
  const CodecFunctions& functions = FunctionsOf(spec.type);
  CHECK_EQ(out.size(), functions.encoded_bytes(spec, values.size()));
  if (residual.empty()) return functions.encode(values, out);

  CHECK_EQ(residual.size(), values.size());
  const size_t block = functions.block > 0 ? functions.block : values.size();
  for (size_t begin = 0; begin < values.size(); begin += block) {
    const size_t size = std::min(block, values.size() - begin);
    const std::span<float> corrected = residual.subspan(begin, size);
    AddInto(corrected, std::as_bytes(values.subspan(begin, size)));
    const size_t bytes = functions.encoded_bytes(spec, size);
    functions.encode(corrected, out.first(bytes));
    functions.lose(out.first(bytes), corrected);
    out = out.subspan(bytes);
  }
}

bool Decode(const Codec& spec, std::span<const std::byte> encoded, std::span<float> out) {
  const CodecFunctions* functions = FunctionsFor(spec, encoded, out.size());
  if (functions != nullptr) functions->assign(encoded, out);
  return functions != nullptr;
}

bool AddDecoded(const Codec& spec, std::span<const std::byte> encoded,
                std::span<float> accumulator) {
  const CodecFunctions* functions = FunctionsFor(spec, encoded, accumulator.size());
  if (functions != nullptr) functions->add(encoded, accumulator);
  return functions != nullptr;
}

void Round(const Codec& spec, std::span<float> values) {
  CHECK(!NeedsErrorFeedback(spec));
  if (spec.type == CodecType::kFp32) return;
  const CodecFunctions& functions = FunctionsOf(spec.type);
  std::array<std::byte, kElementwiseBlock * sizeof(uint16_t)> buffer;
  while (!values.empty()) {
    const std::span<float> block = values.first(std::min(values.size(), kElementwiseBlock));
    const auto encoded = std::span(buffer).first(block.size() * sizeof(uint16_t));
    functions.encode(block, encoded);
    functions.assign(encoded, block);
    values = values.subspan(block.size());
  }
}

}  // namespace poseidon
