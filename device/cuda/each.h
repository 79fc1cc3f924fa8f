// What kernels do that treat each float of vectors alone, or each parameter with its state: four
// that follow each other at once, where all vectors are aligned, so that a thread reads and writes
// 16 bytes at a time (a multiprocessor then needs a quarter of the instructions for the same
// bytes).
//
// An operation is a value with the vectors' addresses, which may not overlap, and has
//   At<kCount>(first)  treats the floats [first, first + kCount); kCount is 1 or 4
//   aligned()          whether At<4> may be called, with a multiple of 4
// Treat() says what thread i of a kernel does. All of it compiles for the host, too, where
// tests/unit/device/each_test.cc holds it against plain loops; device/cuda/launch_each.h launches.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/arithmetic/codec_functions.h"
#include "core/arithmetic/device_function.h"
#include "core/arithmetic/torch_element.h"
#include "core/arithmetic/update_element.h"

namespace poseidon::cuda {

inline constexpr size_t kQuad = 4;
// Of the widest access that a thread has.
inline constexpr size_t kAccessBytes = 16;

// What accesses of four of the Value want.
template <typename Value>
inline constexpr size_t kQuadAlignment = sizeof(Value) * kQuad < kAccessBytes
                                             ? sizeof(Value) * kQuad
                                             : kAccessBytes;

// kCount times kEach values that follow each other in memory.
template <typename Value, size_t kCount, size_t kEach = 1>
struct alignas(kCount == kQuad ? kQuadAlignment<Value> : alignof(Value)) Values {
  Value values[kCount * kEach];

  POSEIDON_HOST_DEVICE static Values Load(const Value* from) {
#ifdef __CUDA_ARCH__
    return *reinterpret_cast<const Values*>(from);
#else
    Values loaded;
    std::memcpy(&loaded, from, sizeof loaded);
    return loaded;
#endif
  }
  POSEIDON_HOST_DEVICE void Store(Value* to) const {
#ifdef __CUDA_ARCH__
    *reinterpret_cast<Values*>(to) = *this;
#else
    std::memcpy(to, this, sizeof *this);
#endif
  }
};

// Whether four of the Value can be read at a multiple of four from here.
template <typename Value>
POSEIDON_HOST_DEVICE bool IsAligned(const Value* address) {
  return reinterpret_cast<uintptr_t>(address) % kQuadAlignment<Value> == 0;
}

// Fours that an operation's vectors of `count` floats have; the rest are treated one by one.
template <typename Operation>
POSEIDON_HOST_DEVICE size_t QuadsOf(const Operation& operation, size_t count) {
  return operation.aligned() ? count / kQuad : 0;
}

// Threads that a kernel needs then.
POSEIDON_HOST_DEVICE inline size_t ThreadsFor(size_t quads, size_t count) {
  return count - (kQuad - 1) * quads;
}

// The work of thread i.
template <typename Operation>
POSEIDON_HOST_DEVICE void Treat(const Operation& operation, size_t i, size_t quads, size_t count) {
  if (i < quads) return operation.template At<kQuad>(kQuad * i);
  const size_t single = i + (kQuad - 1) * quads;
  if (single < count) operation.template At<1>(single);
}

struct AddEach {
  float* accumulator;
  const float* addend;

  POSEIDON_HOST_DEVICE bool aligned() const { return IsAligned(accumulator) && IsAligned(addend); }
  template <size_t kCount>
  POSEIDON_HOST_DEVICE void At(size_t first) const {
    using Floats = Values<float, kCount>;
    Floats sum = Floats::Load(accumulator + first);
    const Floats more = Floats::Load(addend + first);
    for (size_t k = 0; k < kCount; ++k) sum.values[k] += more.values[k];
    sum.Store(accumulator + first);
  }
};

struct ScaleEach {
  float* floats;
  float factor;

  POSEIDON_HOST_DEVICE bool aligned() const { return IsAligned(floats); }
  template <size_t kCount>
  POSEIDON_HOST_DEVICE void At(size_t first) const {
    using Floats = Values<float, kCount>;
    Floats product = Floats::Load(floats + first);
    for (size_t k = 0; k < kCount; ++k) product.values[k] *= factor;
    product.Store(floats + first);
  }
};

// One of Caffe's rules, with a decay, as UpdateEach wants it.
template <typename Rule, typename Decay>
struct CaffeElement {
  static constexpr int kState = Rule::kState;
  POSEIDON_HOST_DEVICE static void Update(const UpdateScalars& scalars, float gradient_sum,
                                          float* parameter, float* state) {
    UpdateElement<Rule, Decay>(scalars, gradient_sum, parameter, state);
  }
};

// Element is a CaffeElement, or one of core/arithmetic/torch_element.h: kState floats of state for
// each parameter, which follow each other.
template <typename Element, typename Scalars>
struct UpdateEach {
  Scalars scalars;
  const float* gradient;
  float* parameters;
  float* optimizer_state;

  POSEIDON_HOST_DEVICE bool aligned() const {
    return IsAligned(gradient) && IsAligned(parameters) && IsAligned(optimizer_state);
  }
  template <size_t kCount>
  POSEIDON_HOST_DEVICE void At(size_t first) const {
    using Floats = Values<float, kCount>;
    using States = Values<float, kCount, Element::kState>;
    const Floats sum = Floats::Load(gradient + first);
    Floats parameter = Floats::Load(parameters + first);
    States state = States::Load(optimizer_state + Element::kState * first);
    for (size_t k = 0; k < kCount; ++k) {
      Element::Update(scalars, sum.values[k], &parameter.values[k],
                      &state.values[Element::kState * k]);
    }
    parameter.Store(parameters + first);
    state.Store(optimizer_state + Element::kState * first);
  }
};

// With the gradient behind each parameter's state.
template <typename Rule, typename Decay>
struct UpdateDeferredEach {
  static constexpr size_t kEach = Rule::kState + 1;
  UpdateScalars scalars;
  float* parameters;
  float* optimizer_state;

  POSEIDON_HOST_DEVICE bool aligned() const {
    return IsAligned(parameters) && IsAligned(optimizer_state);
  }
  template <size_t kCount>
  POSEIDON_HOST_DEVICE void At(size_t first) const {
    using Floats = Values<float, kCount>;
    using States = Values<float, kCount, kEach>;
    Floats parameter = Floats::Load(parameters + first);
    States state = States::Load(optimizer_state + kEach * first);
    for (size_t k = 0; k < kCount; ++k) {
      float* const own = &state.values[kEach * k];
      UpdateElement<Rule, Decay>(scalars, own[Rule::kState], &parameter.values[k], own);
    }
    parameter.Store(parameters + first);
    state.Store(optimizer_state + kEach * first);
  }
};

// FP32 as a codec.
struct Fp32 {
  POSEIDON_HOST_DEVICE static float FromFloat(float value) { return value; }
  POSEIDON_HOST_DEVICE static float ToFloat(float value) { return value; }
};

template <typename Element>
using EncodedAs = decltype(Element::FromFloat(0.0F));

// Packs values, with what is owed from before if `residual` is not null, where what is owed then
// comes to.
template <typename Element, bool kResidual>
struct EncodeEach {
  const float* values;
  float* residual;
  EncodedAs<Element>* out;

  POSEIDON_HOST_DEVICE bool aligned() const {
    return IsAligned(values) && IsAligned(out) && (!kResidual || IsAligned(residual));
  }
  template <size_t kCount>
  POSEIDON_HOST_DEVICE void At(size_t first) const {
    using Floats = Values<float, kCount>;
    Floats corrected = Floats::Load(values + first);
    if constexpr (kResidual) {
      const Floats owed = Floats::Load(residual + first);
      for (size_t k = 0; k < kCount; ++k) {
        corrected.values[k] = owed.values[k] + corrected.values[k];
      }
    }
    Values<EncodedAs<Element>, kCount> encoded;
    for (size_t k = 0; k < kCount; ++k) {
      encoded.values[k] = Element::FromFloat(corrected.values[k]);
    }
    encoded.Store(out + first);
    if constexpr (kResidual) {
      for (size_t k = 0; k < kCount; ++k) {
        corrected.values[k] = Lose::Merge(corrected.values[k], Element::ToFloat(encoded.values[k]));
      }
      corrected.Store(residual + first);
    }
  }
};

// Decodes, and has each meet the float in its place as Merge says (Assign, Add).
template <typename Element, typename Merge>
struct ApplyEach {
  const EncodedAs<Element>* encoded;
  float* x;

  POSEIDON_HOST_DEVICE bool aligned() const { return IsAligned(encoded) && IsAligned(x); }
  template <size_t kCount>
  POSEIDON_HOST_DEVICE void At(size_t first) const {
    using Floats = Values<float, kCount>;
    const auto packed = Values<EncodedAs<Element>, kCount>::Load(encoded + first);
    Floats met = Floats::Load(x + first);
    for (size_t k = 0; k < kCount; ++k) {
      met.values[k] = Merge::Merge(met.values[k], Element::ToFloat(packed.values[k]));
    }
    met.Store(x + first);
  }
};

}  // namespace poseidon::cuda
