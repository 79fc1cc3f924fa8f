// PassGraphs on a stream that is emulated: work is a closure on tensors, which is done, or written
// down while a graph is captured.
#include "worker/torch/pass_graphs.h"

#include <ATen/ops/full.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace poseidon {
namespace {

constexpr int64_t kFloats = 4;

class EmulatedStream : public StreamGraphs {
 public:
  using Work = std::function<void()>;

  void Do(Work work) {
    if (written_down_ != nullptr) return written_down_->push_back(std::move(work));
    work();
  }

  void Begin() override {}
  std::unique_ptr<StreamGraph> Capture(const Work& work) override {
    auto graph = std::make_unique<Graph>();
    written_down_ = &graph->work;
    work();
    written_down_ = nullptr;
    return graph;
  }

 private:
  struct Graph : StreamGraph {
    void Launch() override {
      for (const Work& each : work) each();
    }
    std::vector<Work> work;
  };

  std::vector<Work>* written_down_ = nullptr;
};

// Steps that add up their bottoms in one way or another; what is not captured adds what is the
// pass's own. As layers do, they keep their bottoms for the backward pass.
class RandomNet {
 public:
  explicit RandomNet(uint64_t seed) {
    std::mt19937 random(seed);
    const int count = std::uniform_int_distribution(1, 12)(random);
    const double share = std::uniform_real_distribution(0.0, 1.0)(random);
    for (int step = 0; step < count; ++step) {
      PassGraphs::Step& made = steps.emplace_back();
      made.captured = step > 0 && std::bernoulli_distribution(share)(random);
      made.pause = std::bernoulli_distribution(0.3)(random);
      for (int i = 0; step > 0 && i < std::uniform_int_distribution(1, 3)(random); ++i) {
        const int last = static_cast<int>(values.size()) - 1;
        // The last value often, so that nets are deep; the same one twice, too.
        const bool any = std::bernoulli_distribution(0.4)(random);
        made.bottoms.push_back(any ? std::uniform_int_distribution(0, last)(random) : last);
      }
      for (int i = 0; i < std::uniform_int_distribution(1, 2)(random); ++i) {
        made.tops.push_back(static_cast<int>(values.size()));
        values.emplace_back();
      }
      gradients.push_back(at::zeros({kFloats}));
    }
    kept_.resize(steps.size());
  }

  std::vector<StepCall> Calls() {
    std::vector<StepCall> calls;
    const int count = static_cast<int>(steps.size());
    for (int step = 0; step < count; ++step) calls.push_back({step, false, {}});
    for (int step = count - 1; step >= 0; --step) {
      const std::span<float> target(gradients[step].data_ptr<float>(), kFloats);
      calls.push_back({step, true, {target, {}, {}}});
    }
    return calls;
  }

  void Capture() {
    graphs.emplace(stream, values, steps, Calls(), [this](const StepCall& call) { Compute(call); });
  }

  void Do(const StepCall& call) { graphs ? graphs->Do(call) : Compute(call); }

  void Compute(const StepCall& call) {
    if (call.backward) {
      Backward(call.step);
    } else {
      Forward(call.step);
    }
  }

  EmulatedStream stream;
  std::vector<PassGraphs::Step> steps;
  std::vector<NetValue> values;
  std::vector<at::Tensor> gradients;  // a step each
  std::optional<PassGraphs> graphs;
  float pass = 0;

 private:
  void Forward(int number) {
    const PassGraphs::Step& step = steps[number];
    kept_[number].clear();
    for (const int bottom : step.bottoms) kept_[number].push_back(values[bottom].data);
    for (const int top : step.tops) {
      const at::Tensor made = at::full({kFloats}, 77.0F);
      values[top].data = made;
      const float own = step.captured ? 0 : pass;
      stream.Do([made, own, number, bottoms = kept_[number]] {
        made.fill_(0.1 * number + own);
        for (const at::Tensor& bottom : bottoms) made.add_(at::tanh(bottom));
      });
    }
  }

  void Backward(int number) {
    const PassGraphs::Step& step = steps[number];
    const at::Tensor sum = at::full({kFloats}, 77.0F);
    Tensors at_tops;
    for (const int top : step.tops) {
      if (values[top].gradient.defined()) at_tops.push_back(std::move(values[top].gradient));
      values[top].gradient.reset();
      values[top].data.reset();
    }
    const float own = step.captured ? 1 : 1 + pass;
    stream.Do([sum, at_tops, own] {
      sum.fill_(own);
      for (const at::Tensor& gradient : at_tops) sum.add_(gradient);
    });
    stream.Do([sum, target = gradients[number]] { target.copy_(sum); });
    for (size_t i = 0; i < step.bottoms.size(); ++i) {
      const at::Tensor at_bottom = at::full({kFloats}, 77.0F);
      stream.Do([at_bottom, sum, kept = kept_[number][i]] {
        at_bottom.copy_(sum).mul_(0.5).add_(kept, 0.25);
      });
      at::Tensor& all = values[step.bottoms[i]].gradient;
      if (!all.defined()) {
        all = at_bottom;
        continue;
      }
      const at::Tensor both = at::full({kFloats}, 77.0F);
      stream.Do([both, before = all, at_bottom] { both.copy_(before).add_(at_bottom); });
      all = both;
    }
  }

  std::vector<Tensors> kept_;
};

std::vector<float> FloatsOf(const at::Tensor& tensor) {
  return {tensor.data_ptr<float>(), tensor.data_ptr<float>() + tensor.numel()};
}

// Some are given up on their way.
TEST(PassGraphsTest, PassesOfRandomNetsAreThoseStepByStep) {
  std::mt19937 random(1);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomNet as_graphs(seed);
    RandomNet by_steps(seed);
    as_graphs.Capture();
    const std::vector<StepCall> calls = as_graphs.Calls();
    const std::vector<StepCall> other_calls = by_steps.Calls();
    for (int pass = 1; pass < 5; ++pass) {
      as_graphs.pass = by_steps.pass = static_cast<float>(pass);
      if (std::bernoulli_distribution(0.3)(random)) {
        as_graphs.graphs->Begin();
        const auto some = std::uniform_int_distribution<size_t>(0, calls.size())(random);
        for (size_t call = 0; call < some; ++call) as_graphs.Do(calls[call]);
        for (NetValue& value : as_graphs.values) value.gradient.reset();  // as a net does
      }
      as_graphs.graphs->Begin();
      for (const StepCall& call : calls) as_graphs.Do(call);
      for (const StepCall& call : other_calls) by_steps.Do(call);
      for (size_t step = 0; step < by_steps.steps.size(); ++step) {
        ASSERT_EQ(FloatsOf(as_graphs.gradients[step]), FloatsOf(by_steps.gradients[step]))
            << "pass " << pass << ", step " << step;
      }
    }
  }
}

// Five steps, one behind the other, of which the first gives data and the last one is a loss.
class PausesTest : public ::testing::Test {
 protected:
  PausesTest() {
    for (int step = 0; step < 5; ++step) {
      PassGraphs::Step& made = steps_.emplace_back();
      if (step > 0) made.bottoms = {step - 1};
      made.tops = {step};
      made.captured = step > 0 && step < 4;
    }
  }

  // The numbers of the calls with which something was put in the stream.
  std::vector<int> Launches() {
    std::vector<StepCall> calls;
    for (int step = 0; step < 5; ++step) calls.push_back({step, false, {}});
    for (int step = 4; step >= 0; --step) calls.push_back({step, true, {}});
    std::vector<NetValue> values(5);
    std::vector<int> launches;
    bool capturing = true;
    EmulatedStream stream;
    PassGraphs graphs(stream, values, steps_, calls, [&](const StepCall&) {
      stream.Do([&] {
        if (!capturing && (launches.empty() || launches.back() != calls_)) {
          launches.push_back(calls_);
        }
      });
    });
    capturing = false;
    graphs.Begin();
    for (calls_ = 0; calls_ < 10; ++calls_) graphs.Do(calls[calls_]);
    return launches;
  }

  std::vector<PassGraphs::Step> steps_;
  int calls_ = 0;
};

TEST_F(PausesTest, AGraphIsLaunchedWithItsLastCall) {
  EXPECT_EQ(Launches(), (std::vector<int>{0, 3, 4, 5, 8, 9}));
}

// Before the forward pass of step 2 (call 2), and behind its backward pass (call 7).
TEST_F(PausesTest, AGraphEndsAtAPause) {
  steps_[2].pause = true;
  EXPECT_EQ(Launches(), (std::vector<int>{0, 1, 3, 4, 5, 7, 8, 9}));
}

// Somebody takes the losses from the stream there.
TEST_F(PausesTest, NoGraphIsOfBothPasses) {
  steps_[4].captured = true;
  EXPECT_EQ(Launches(), (std::vector<int>{0, 4, 8, 9}));
}

TEST_F(PausesTest, AnotherTargetIsNotWrittenToInSilence) {
  steps_ = {{.bottoms = {}, .tops = {0}, .captured = false, .pause = false}};
  std::vector<NetValue> values(1);
  std::vector<float> target(3);
  EmulatedStream stream;
  PassGraphs graphs(stream, values, steps_, {{0, true, {target, {}, {}}}}, [](const StepCall&) {});
  EXPECT_DEATH(graphs.Do({0, true, {std::span(target).first(2), {}, {}}}), "another pass");
}

}  // namespace
}  // namespace poseidon
