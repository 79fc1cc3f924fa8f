// A network of workers without any network, for tests of DeviceStaging: what all workers have put
// into their hosts' buffers is added up in the order of ranks by one thread, which is the wire.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/staging/layer_exchange.h"
#include "core/arithmetic/codec.h"
#include "core/error.h"
#include "device/host_device.h"
#include "device/pinned_pool.h"

namespace poseidon {

using Floats = std::vector<float>;

// Dense, or, with rows, of factors: u rows x outputs, v rows x inputs.
struct TestLayer {
  size_t floats = 0;
  size_t rows = 0;
  size_t outputs = 0;

  size_t inputs() const { return floats / outputs; }
  bool factors() const { return rows > 0; }
};

constexpr float kStep = 0.125F;
constexpr Codec kPacked{.type = CodecType::kBf16};
constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

// gradient += u^T v.
inline void AddProduct(const TestLayer& layer, std::span<const float> u, std::span<const float> v,
                       Floats& gradient) {
  for (size_t row = 0; row < u.size() / layer.outputs; ++row) {
    for (size_t i = 0; i < layer.floats; ++i) {
      gradient[i] += u[row * layer.outputs + i / layer.inputs()] *
                     v[row * layer.inputs() + i % layer.inputs()];
    }
  }
}

inline UpdateRule TestRule() {
  UpdateRule rule;
  rule.base_lr = kStep;
  rule.momentum = 0.5F;
  rule.weight_decay = 0.01F;
  return rule;
}

class TestNetwork;

class TestExchange : public LayerExchange {
 public:
  // Its buffers are pinned for `device`.
  TestExchange(TestNetwork& network, const std::vector<TestLayer>& layers, Device& device)
      : network_(network),
        layers_(layers),
        memory_(PinnedFor(device), 1 << 20),
        fresh_(layers.size(), 0) {
    const auto allocate = [&](size_t floats) {
      return memory_.Allocate(static_cast<int64_t>(floats));
    };
    // A session has a bucket's in one piece; here it is all layers'.
    size_t values = 0, gradients = 0;
    for (const TestLayer& layer : layers) {
      values += layer.floats;
      gradients += layer.factors() ? 0 : layer.floats;
    }
    std::span<float> all_values = allocate(values), all_gradients = allocate(gradients);
    const auto take = [](std::span<float>& rest, size_t floats) {
      const std::span<float> taken = rest.first(floats);
      rest = rest.subspan(floats);
      return taken;
    };
    for (const TestLayer& layer : layers) {
      names_.push_back("layer" + std::to_string(hosts_.size()));
      hosts_.push_back({take(all_values, layer.floats),
                        take(all_gradients, layer.factors() ? 0 : layer.floats),
                        allocate(layer.rows * layer.outputs),
                        allocate(layer.factors() ? layer.rows * layer.inputs() : 0)});
      std::fill(hosts_.back().values.begin(), hosts_.back().values.end(), 1.0F);
      hosts_.back().optimizer_state.assign(layer.floats, 0.0F);
      hosts_.back().packed.resize(
          layer.factors() ? 0 : EncodedBytes(kPacked, static_cast<int64_t>(layer.floats)));
    }
  }

  std::vector<Bucket> buckets() const override;
  int64_t iteration() const override { return iteration_; }
  const std::string& LayerName(int layer) const override { return names_[layer]; }
  Buffers buffers(int layer) const override {
    const Host& host = hosts_[layer];
    return {host.values, {host.gradient, host.u, host.v}, nullptr};
  }
  void GradientReady(int layer) override;
  bool IsFresh(int layer, int64_t iteration) const override {
    const std::lock_guard lock(mutex_);
    return fresh_[layer] >= iteration;
  }
  void WaitUntil(const std::function<bool()>& done, const std::string& waiting_for) override {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (!done()) {
      std::unique_lock lock(mutex_);
      ++waits;
      news_arrived_.wait_for(lock, std::chrono::milliseconds(20), [&] { return news_; });
      news_ = false;
      if (!failure_.empty()) throw PeerLost(failure_);
      if (std::chrono::steady_clock::now() >= deadline) {
        throw DeadlineExceeded("gave up waiting for " + waiting_for);
      }
    }
  }
  void Wake() override {
    const std::lock_guard lock(mutex_);
    ++wakes_;
    news_ = true;
    news_arrived_.notify_all();
  }
  // As a session does that looks into its mail: when it has been woken so many times, it knows.
  void TakeNews(int wakes) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(news_arrived_.wait_for(lock, patience, [&] { return wakes_ >= wakes; }));
    news_ = false;
  }

  void EndIteration() { ++iteration_; }
  void Fail(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    failure_ = reason;
  }

  // Another plan: nothing is fresh until it has come again.
  void Forget(int layer) {
    const std::lock_guard lock(mutex_);
    --fresh_[layer];
  }
  void Publish(int layer, float value) {
    std::fill(hosts_[layer].values.begin(), hosts_[layer].values.end(), value);
    {
      const std::lock_guard lock(mutex_);
      ++fresh_[layer];
    }
    Wake();
  }

  // The wire's half: adds this worker's gradient, which nobody needs any more; brings new values.
  void AddTo(int layer, Floats& sum) {
    Host& host = hosts_[layer];
    const std::span<std::byte> packed = packed_gradient(layer).bytes;
    if (!packed.empty()) {
      EXPECT_TRUE(Decode(kPacked, packed, host.gradient));
    }
    if (layers_[layer].factors()) {
      AddProduct(layers_[layer], host.u, host.v, sum);
    } else {
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += host.gradient[i];
    }
    std::fill(host.gradient.begin(), host.gradient.end(), kPoison);
    std::fill(host.u.begin(), host.u.end(), kPoison);
  }
  // Instead of new values: the devices make them of it.
  void TakeSum(int layer, const Floats& sum) {
    std::copy(sum.begin(), sum.end(), hosts_[layer].gradient.begin());
    {
      const std::lock_guard lock(mutex_);
      ++fresh_[layer];
    }
    Wake();
  }
  void Step(int layer, const Floats& sum) {
    Host& host = hosts_[layer];
    for (size_t i = 0; i < sum.size(); ++i) host.values[i] -= kStep * sum[i];
    {
      const std::lock_guard lock(mutex_);
      ++fresh_[layer];
    }
    Wake();
  }

  void AddExposed(Duration stood_still) override { exposed.back() += stood_still; }
  // What was told before the first gradient, between the first ones of the first two iterations,
  // and so on.
  std::vector<Duration> exposed{Duration()};

  Trace* trace() override { return timeline; }
  std::optional<ProductUpdate> product_update(int layer) const override;
  std::optional<DenseUpdate> dense_update(int layer) const override;
  std::span<float> reduced_gradient(int layer, int64_t /*iteration*/) const override {
    return hosts_[layer].gradient;
  }
  bool gradient_stays(int layer) const override;
  // Whether all of the layer's bucket do.
  bool BucketStays(int layer) const;
  FactorStack factors(int layer, int64_t iteration) const override {
    // As a session has it: the floats are not the exchange's own.
    auto& host = const_cast<Host&>(hosts_[layer]);
    EXPECT_FALSE(host.all_u[iteration % 2].empty());
    return {host.all_u[iteration % 2], host.all_v[iteration % 2]};
  }
  std::span<float> optimizer_state(int layer) const override {
    // As a session has it: the floats are not the exchange's own.
    return const_cast<Floats&>(hosts_[layer].optimizer_state);
  }
  PackedGradient packed_gradient(int layer) const override;
  bool devices_update() const;
  bool devices_pack() const;
  // The layer's values on the host.
  Floats Values(int layer) const {
    return {hosts_[layer].values.begin(), hosts_[layer].values.end()};
  }

  Trace* timeline = nullptr;  // before the staging is made
  std::function<void(int layer)> at_gradient_ready;
  int waits = 0;  // of WaitUntil for news
  // The wire's half where devices update: another worker's factors, or this one's, which nobody
  // needs in their place any more.
  void TakeFactors(int layer, TestExchange& from) {
    Host& to = hosts_[layer];
    const Host& other = from.hosts_[layer];
    Floats& u = to.all_u[to.updates % 2];
    Floats& v = to.all_v[to.updates % 2];
    u.insert(u.end(), other.u.begin(), other.u.end());
    v.insert(v.end(), other.v.begin(), other.v.end());
  }
  void FactorsAreHere(int layer) {
    Host& host = hosts_[layer];
    std::fill(host.u.begin(), host.u.end(), kPoison);
    std::fill(host.v.begin(), host.v.end(), kPoison);
    ++host.updates;
    // Of the iteration before the last, which the device must have taken.
    host.all_u[host.updates % 2].clear();
    host.all_v[host.updates % 2].clear();
    {
      const std::lock_guard lock(mutex_);
      ++fresh_[layer];
    }
    Wake();
  }

  std::chrono::milliseconds patience = std::chrono::seconds(60);

 private:
  struct Host {
    std::span<float> values, gradient, u, v;
    std::array<Floats, 2> all_u{}, all_v{};
    Floats optimizer_state{};
    std::vector<std::byte> packed{};
    int64_t updates = 0;
  };

  TestNetwork& network_;
  std::vector<TestLayer> layers_;
  PinnedPool memory_;
  std::vector<Host> hosts_;
  std::vector<std::string> names_;
  int64_t iteration_ = 0;
  int64_t sent_ = -1;         // the latest iteration of which a gradient has left
  mutable std::mutex mutex_;  // of what follows
  std::condition_variable news_arrived_;
  int wakes_ = 0;
  bool news_ = false;
  std::vector<int64_t> fresh_;
  std::string failure_;
};

class TestNetwork {
 public:
  // `delay`, of a layer: how long the wire takes, one layer after the other.
  TestNetwork(int workers, const std::vector<TestLayer>& layers,
              std::function<std::chrono::microseconds(int layer)> delay,
              std::unique_ptr<Device> device = std::make_unique<HostDevice>(HostDevice::Options{}))
      : layers_(layers),
        delay_(std::move(delay)),
        device_(std::move(device)),
        ready_(layers.size(), 0) {
    for (int rank = 0; rank < workers; ++rank) {
      workers_.push_back(std::make_unique<TestExchange>(*this, layers, *device_));
    }
    wire_ = std::thread([this] { Loop(); });
  }
  ~TestNetwork() {
    Put(-1);
    wire_.join();
  }

  TestExchange& worker(int rank) { return *workers_[rank]; }
  size_t workers() const { return workers_.size(); }

  // Factors are the devices' to make updates of; before stages are made.
  bool devices_update = false;
  // And gradients to pack, as bf16.
  bool devices_pack = false;
  // And updates to make from gradients, with momentum; those of one worker stay where they are,
  // unless they are packed.
  bool devices_update_dense = false;
  // But for those of these layers, to which the host has something to add.
  std::set<int> to_the_host;
  UpdateRule rule = TestRule();
  // How many layers each bucket has; the rest have one each.
  std::vector<int> buckets;

  void LayerReady(int layer) {
    {
      const std::lock_guard lock(mutex_);
      if (++ready_[layer] < workers_.size()) return;
      ready_[layer] = 0;
    }
    Put(layer);
  }

 private:
  void Broadcast(int layer) {
    for (const auto& to : workers_) {
      for (const auto& from : workers_) to->TakeFactors(layer, *from);
    }
    for (const auto& worker : workers_) worker->FactorsAreHere(layer);
  }
  void Put(int layer) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(layer);
    changed_.notify_all();
  }
  int Take() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !queue_.empty(); });
    const int layer = queue_.front();
    queue_.pop_front();
    return layer;
  }
  void Loop() {
    for (int layer = Take(); layer >= 0; layer = Take()) {
      std::this_thread::sleep_for(delay_(layer));
      if (devices_update && layers_[layer].factors()) {
        Broadcast(layer);
        continue;
      }
      Floats sum(layers_[layer].floats, 0.0F);
      const bool dense = devices_update_dense && !layers_[layer].factors();
      if (dense && workers_[0]->BucketStays(layer)) {
        workers_[0]->TakeSum(layer, Floats(sum.size(), kPoison));  // nobody looks there
        continue;
      }
      for (const auto& worker : workers_) worker->AddTo(layer, sum);
      for (const auto& worker : workers_) {
        dense ? worker->TakeSum(layer, sum) : worker->Step(layer, sum);
      }
    }
  }

  std::vector<TestLayer> layers_;
  std::function<std::chrono::microseconds(int)> delay_;
  std::unique_ptr<Device> device_;
  std::vector<std::unique_ptr<TestExchange>> workers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<int> queue_;
  std::vector<size_t> ready_;
  std::thread wire_;
};

inline void TestExchange::GradientReady(int layer) {
  if (std::exchange(sent_, iteration_) != iteration_) exposed.emplace_back();
  if (at_gradient_ready) at_gradient_ready(layer);
  network_.LayerReady(layer);
}

inline std::vector<LayerExchange::Bucket> TestExchange::buckets() const {
  std::vector<Bucket> buckets;
  int first = 0;
  const auto add = [&](int layers) {
    std::string name = names_[first];
    for (int l = 1; l < layers; ++l) name += "+" + names_[first + l];
    buckets.push_back({first, layers, name});
    first += layers;
  };
  for (const int layers : network_.buckets) add(layers);
  while (first < static_cast<int>(names_.size())) add(1);
  return buckets;
}

inline std::optional<DenseUpdate> TestExchange::dense_update(int layer) const {
  if (!network_.devices_update_dense || layers_[layer].factors()) return std::nullopt;
  const auto floats = static_cast<int64_t>(layers_[layer].floats);
  // Weights, and a third that are biases, whose rate is twice as high.
  return DenseUpdate{.rule = &network_.rule,
                     .segments = {{floats - floats / 3, {}}, {floats / 3, {.lr = 2}}}};
}

inline bool TestExchange::gradient_stays(int layer) const {
  return dense_update(layer) && network_.workers() == 1 && !network_.devices_pack &&
         !network_.to_the_host.contains(layer);
}

inline bool TestExchange::BucketStays(int layer) const {
  for (const Bucket& bucket : buckets()) {
    if (layer < bucket.first_layer || layer >= bucket.first_layer + bucket.layers) continue;
    for (int l = 0; l < bucket.layers; ++l) {
      if (!gradient_stays(bucket.first_layer + l)) return false;
    }
  }
  return true;
}

inline bool TestExchange::devices_update() const { return network_.devices_update; }
inline bool TestExchange::devices_pack() const { return network_.devices_pack; }

inline PackedGradient TestExchange::packed_gradient(int layer) const {
  if (!network_.devices_pack || layers_[layer].factors()) return {};
  // As a session has it: the bytes are not the exchange's own.
  return {const_cast<std::vector<std::byte>&>(hosts_[layer].packed), kPacked};
}

inline std::optional<ProductUpdate> TestExchange::product_update(int layer) const {
  static const UpdateRule kRule;
  const TestLayer& spec = layers_[layer];
  if (!network_.devices_update || !spec.factors()) return std::nullopt;
  return ProductUpdate{.outputs = static_cast<int64_t>(spec.outputs),
                       .inputs = static_cast<int64_t>(spec.inputs()),
                       .rows = static_cast<int64_t>(spec.rows * network_.workers()),
                       .rule = &kRule,
                       .weights = {},
                       .bias = {}};
}

// What TestExchange::Step does, in a stream, and counts the updates in the optimizer_state.
class TestFactorUpdate : public FactorUpdate {
 public:
  explicit TestFactorUpdate(HostDevice& device) : device_(device) {}
  void Apply(const ProductUpdate& layer, int64_t /*iteration*/, const Memory& memory,
             DeviceStream stream) override {
    device_.Run(stream, [=] {
      Floats sum(memory.parameters.size(), 0.0F);
      AddProduct({.floats = sum.size(), .outputs = static_cast<size_t>(layer.outputs)}, memory.u,
                 memory.v, sum);
      for (size_t i = 0; i < sum.size(); ++i) {
        memory.parameters[i] -= kStep * sum[i];
        memory.optimizer_state[i] += 1;
      }
    });
  }

 private:
  HostDevice& device_;
};

// What a replica computes in an iteration, of parameters that it reads: its gradient, or factors of
// so many rows.
inline void TestGradient(std::span<const float> values, int replica, int64_t iteration,
                         std::span<float> gradient) {
  for (size_t i = 0; i < gradient.size(); ++i) {
    const auto noise = static_cast<float>((i * 7 + replica * 31 + iteration * 13) % 101);
    gradient[i] = 0.25F * values[i % values.size()] + 0.01F * noise - 0.5F;
  }
}

}  // namespace poseidon
