// Multiply against sums in double, over random extents and ways to lie in memory.
#include "worker/torch/layers/torch_product.h"

#include <signal.h>

#include <atomic>
#include <chrono>
#include <limits>
#include <thread>

#include "core/program.h"
#include "core/steady_now.h"
#include "tests/unit/worker/torch_layer_testing.h"

namespace poseidon {
namespace {

int64_t UpTo(int64_t most) { return std::uniform_int_distribution<int64_t>(1, most)(Generator()); }

// The same values, lying in another way: densely by rows, by columns, as a part of wider rows or of
// longer columns, every other one of a row.
at::Tensor Lying(const at::Tensor& values, int64_t way) {
  const int64_t rows = values.size(0);
  const int64_t columns = values.size(1);
  at::Tensor other;
  switch (way) {
    case 0:
      return values.clone(at::MemoryFormat::Contiguous);
    case 1:
      return values.t().clone(at::MemoryFormat::Contiguous).t();
    case 2:
      other = at::zeros({rows, columns + 3}, values.options()).narrow(1, 2, columns);
      break;
    case 3:
      other = at::zeros({columns, rows + 3}, values.options()).narrow(1, 1, rows).t();
      break;
    default:
      other = at::zeros({rows, columns, 2}, values.options()).select(2, 0);
  }
  return other.copy_(values);
}

TEST(TorchProductTest, IsTheSumOfProducts) {
  for (int draw = 0; draw < 400; ++draw) {
    const int64_t rows = draw % 5 == 0 ? 1 : UpTo(70);
    const int64_t terms = draw % 7 == 0 ? 1 : UpTo(300);
    const int64_t columns = draw % 6 == 0 ? 1 : UpTo(90);
    const int64_t ways[] = {UpTo(5) - 1, UpTo(5) - 1, UpTo(5) - 1};
    const bool add = UpTo(2) == 1;
    const auto type = draw % 10 == 9 ? at::kDouble : at::kFloat;
    const at::Tensor left = RandomTensor({rows, terms}).to(type);
    const at::Tensor right = RandomTensor({terms, columns}).to(type);
    const at::Tensor before = RandomTensor({rows, columns}).to(type);
    // What was there before must not reach a product that is not added to it, not even by 0 * NaN.
    const at::Tensor product = Lying(
        add ? before : at::full_like(before, std::numeric_limits<double>::quiet_NaN()), ways[2]);
    Multiply(Lying(left, ways[0]), Lying(right, ways[1]), add, product);

    at::Tensor expected = at::mm(left.to(at::kDouble), right.to(at::kDouble));
    at::Tensor magnitude = at::mm(left.to(at::kDouble).abs(), right.to(at::kDouble).abs());
    if (add) {
      expected += before;
      magnitude += before.abs();
    }
    // Each of the terms and sums is rounded once, whatever their order.
    const double rounding = std::numeric_limits<float>::epsilon() / 2;
    const at::Tensor bound = magnitude * static_cast<double>(terms + 2) * rounding;
    EXPECT_TRUE((product.to(at::kDouble) - expected).abs().le(bound).all().item<bool>())
        << rows << " x " << terms << " x " << columns << ", ways " << ways[0] << ways[1] << ways[2]
        << (add ? ", added" : "");
  }
}

// Signals come at any moment. oneDNN's products use the stack pointer for memory of the heap, so a
// handler must have a stack of its own, or it writes over what lies below.
TEST(TorchProductTest, SurvivesSignals) {
  // LeNet's ip1.
  const at::Tensor left = RandomTensor({16, 800}).to(at::kFloat);
  const at::Tensor right = RandomTensor({800, 500}).to(at::kFloat);
  const auto multiply = [&] {
    const at::Tensor product = at::empty({16, 500});
    Multiply(left, right, false, product);
    return product;
  };
  const at::Tensor undisturbed = multiply();
  SignalEffects effects;
  effects.sigint = SignalEffect::kSnapshot;  // only noted
  Interruption interruption(effects);
  std::atomic<bool> done = false;
  std::thread sender([&done, computing = pthread_self()] {
    while (!done) {
      pthread_kill(computing, SIGINT);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  bool same = true;
  for (const Time end = SteadyNow() + Seconds(1); SteadyNow() < end;) {
    const at::Tensor beside = at::ones({UpTo(200000)});  // another part of the heap each time
    same &= multiply().equal(undisturbed) && beside.eq(1).all().item<bool>();
  }
  done = true;
  sender.join();
  EXPECT_TRUE(same);
  EXPECT_TRUE(interruption.TakeRequest());
}

TEST(TorchProductTest, OfNoTermsIsZeroOrWhatWasThere) {
  const at::Tensor before = RandomTensor({3, 4}).to(at::kFloat);
  for (const bool add : {false, true}) {
    const at::Tensor product = before.clone();
    Multiply(at::empty({3, 0}), at::empty({0, 4}), add, product);
    EXPECT_TRUE(product.equal(add ? before : at::zeros_like(before)));
  }
}

}  // namespace
}  // namespace poseidon
