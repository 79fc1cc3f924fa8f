// What kernels do with each float, on the host: fours and single ones, aligned and not, in any
// order, against plain loops, to the bit.
#include "device/cuda/each.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "core/arithmetic/half.h"

namespace poseidon::cuda {
namespace {

// `size` values of a vector that begins `offset` values behind an address which is aligned, among
// others that nobody may touch.
template <typename Value>
class Placed {
 public:
  Placed(size_t size, size_t offset) : memory_(size / kEach + 3), offset_(offset), size_(size) {
    for (size_t i = 0; i < memory_.size() * kEach; ++i) first()[i] = kUntouched;
  }
  Value* data() { return first() + kEach + offset_; }
  std::vector<Value> Read() { return {data(), data() + size_}; }
  void Write(const std::vector<Value>& values) { std::ranges::copy(values, data()); }
  bool OthersAreUntouched() {
    const auto untouched = [](Value value) { return value == kUntouched; };
    return std::all_of(first(), data(), untouched) &&
           std::all_of(data() + size_, first() + memory_.size() * kEach, untouched);
  }

 private:
  struct alignas(kAccessBytes) Access {
    std::byte bytes[kAccessBytes];
  };
  static constexpr size_t kEach = kAccessBytes / sizeof(Value);
  static constexpr Value kUntouched = Value(77);

  Value* first() { return reinterpret_cast<Value*>(memory_.data()); }

  std::vector<Access> memory_;
  size_t offset_, size_;
};

class EachTest : public testing::Test {
 protected:
  size_t Draw(size_t below) { return random_() % below; }
  std::vector<float> Floats(size_t count) {
    std::normal_distribution<float> value;
    std::vector<float> floats(count);
    for (float& f : floats) f = Draw(8) == 0 ? 0.0F : value(random_) * value(random_);
    return floats;
  }
  // Half of the vectors are aligned, or hardly any kernel would have fours.
  size_t Offset() { return Draw(2) == 0 ? 0 : Draw(4); }

  // As a kernel of as many threads, and of some more, in any order. Counts what had fours.
  template <typename Operation>
  void Run(const Operation& operation, size_t count) {
    const size_t quads = QuadsOf(operation, count);
    EXPECT_TRUE(quads == 0 || quads == count / kQuad);
    std::vector<size_t> threads(ThreadsFor(quads, count) + Draw(300));
    std::iota(threads.begin(), threads.end(), size_t{0});
    std::shuffle(threads.begin(), threads.end(), random_);
    for (const size_t i : threads) Treat(operation, i, quads, count);
    (quads > 0 ? with_quads_ : without_) += 1;
  }
  void ExpectBothWays() const {
    EXPECT_GT(with_quads_, 10);
    EXPECT_GT(without_, 10);
  }
  static void ExpectSame(Placed<float>& found, const std::vector<float>& expected) {
    EXPECT_TRUE(found.OthersAreUntouched());
    const std::vector<float> floats = found.Read();
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), std::bit_cast<uint32_t>(expected[i])) << i;
    }
  }

  // Squares' means are not below 0.
  std::vector<float> States(size_t count) {
    std::vector<float> states = Floats(count);
    for (float& h : states) h = std::abs(h);
    return states;
  }

  template <typename Element, typename Scalars>
  void TryUpdates(const Scalars& scalars) {
    // A quarter of them have fours: enough for ExpectBothWays after two rules.
    for (int round = 0; round < 100; ++round) {
      const size_t count = Draw(50);
      const std::vector<float> gradient = Floats(count);
      std::vector<float> parameters = Floats(count), state = States(count * Element::kState);
      Placed<float> g(count, Offset()), p(count, Offset()), h(count * Element::kState, Offset());
      g.Write(gradient), p.Write(parameters), h.Write(state);
      Run(UpdateEach<Element, Scalars>{scalars, g.data(), p.data(), h.data()}, count);
      for (size_t i = 0; i < count; ++i) {
        Element::Update(scalars, gradient[i], &parameters[i], &state[i * Element::kState]);
      }
      ExpectSame(g, gradient), ExpectSame(p, parameters), ExpectSame(h, state);
    }
  }

  // The gradient stands behind each parameter's state.
  template <typename Rule, typename Decay>
  void TryDeferredUpdates() {
    constexpr size_t kEach = Rule::kState + 1;
    for (int round = 0; round < 40; ++round) {
      const size_t count = Draw(50);
      std::vector<float> parameters = Floats(count), state = States(count * kEach);
      Placed<float> p(count, Offset()), h(count * kEach, Offset());
      p.Write(parameters), h.Write(state);
      Run(UpdateDeferredEach<Rule, Decay>{kScalars, p.data(), h.data()}, count);
      for (size_t i = 0; i < count; ++i) {
        float* const own = &state[i * kEach];
        UpdateElement<Rule, Decay>(kScalars, own[Rule::kState], &parameters[i], own);
      }
      ExpectSame(p, parameters), ExpectSame(h, state);
    }
  }

  template <typename Rule, typename Decay>
  void TryRule() {
    TryUpdates<CaffeElement<Rule, Decay>>(kScalars);
    TryDeferredUpdates<Rule, Decay>();
  }

  static constexpr UpdateScalars kScalars{.learning_rate = 0.1F,
                                          .decay = 0.01F,
                                          .gradient_scale = 0.25F,
                                          .momentum = 0.9F,
                                          .momentum2 = 0.99F,
                                          .rms_decay = 0.98F,
                                          .delta = 1e-8F,
                                          .momentum_scale = 0.5F};

  template <typename Element>
  void TryCodec() {
    using Encoded = EncodedAs<Element>;
    for (int round = 0; round < 100; ++round) {
      const size_t count = Draw(50);
      const std::vector<float> values = Floats(count);
      std::vector<float> owed = Floats(count), x = Floats(count), assigned(count);
      std::vector<Encoded> expected(count), expected_owing(count);
      Placed<float> v(count, Offset()), r(count, Offset()), a(count, Offset()), b(count, Offset());
      Placed<Encoded> out(count, Offset()), owing(count, Offset());
      v.Write(values), r.Write(owed), a.Write(x);
      Run(EncodeEach<Element, false>{v.data(), nullptr, out.data()}, count);
      Run(EncodeEach<Element, true>{v.data(), r.data(), owing.data()}, count);
      Run(ApplyEach<Element, Add>{out.data(), a.data()}, count);
      Run(ApplyEach<Element, Assign>{out.data(), b.data()}, count);
      for (size_t i = 0; i < count; ++i) {
        expected[i] = Element::FromFloat(values[i]);
        const float corrected = owed[i] + values[i];
        expected_owing[i] = Element::FromFloat(corrected);
        owed[i] = Lose::Merge(corrected, Element::ToFloat(expected_owing[i]));
        assigned[i] = Element::ToFloat(expected[i]);
        x[i] += assigned[i];
      }
      EXPECT_EQ(out.Read(), expected);
      EXPECT_EQ(owing.Read(), expected_owing);
      EXPECT_TRUE(out.OthersAreUntouched() && owing.OthersAreUntouched());
      ExpectSame(v, values), ExpectSame(r, owed), ExpectSame(a, x), ExpectSame(b, assigned);
    }
    ExpectBothWays();
  }

  std::mt19937 random_{testing::UnitTest::GetInstance()->random_seed() + 1U};
  int with_quads_ = 0, without_ = 0;
};

TEST_F(EachTest, SumsAndProducts) {
  for (int round = 0; round < 200; ++round) {
    const size_t count = Draw(50);
    std::vector<float> sum = Floats(count);
    const std::vector<float> addend = Floats(count);
    Placed<float> a(count, Offset()), b(count, Offset());
    a.Write(sum), b.Write(addend);
    Run(AddEach{a.data(), b.data()}, count);
    for (size_t i = 0; i < count; ++i) sum[i] += addend[i];
    ExpectSame(a, sum), ExpectSame(b, addend);
    Run(ScaleEach{a.data(), 0.3F}, count);
    for (float& f : sum) f *= 0.3F;
    ExpectSame(a, sum);
  }
  ExpectBothWays();
}

TEST_F(EachTest, CaffesRules) {
  TryRule<SgdElement, NoDecay>();
  TryRule<NesterovElement, L1Decay>();
  TryRule<AdaGradElement, L2Decay>();
  TryRule<RmsPropElement, NoDecay>();
  TryRule<AdaDeltaElement, L2Decay>();
  TryRule<AdamElement, L1Decay>();
  ExpectBothWays();
}

TEST_F(EachTest, TorchsRules) {
  const TorchScalars scalars{.gradient_scale = 0.25F,
                             .decay = 0.99F,
                             .momentum = 0.9F,
                             .added = 0.1F,
                             .momentum2 = 0.99F,
                             .added2 = 0.01F,
                             .root_divisor = 0.3F,
                             .delta = 1e-8F,
                             .negative_rate = -0.1F,
                             .nesterov = true};
  TryUpdates<TorchSgdElement>(scalars);
  TryUpdates<TorchAdamWElement>(scalars);
  ExpectBothWays();
}

TEST_F(EachTest, CodecsOfSingleFloats) {
  TryCodec<Fp32>();
  TryCodec<Fp16>();
  TryCodec<Bf16>();
}

}  // namespace
}  // namespace poseidon::cuda
