#include "client/device_stage.h"

#include <glog/logging.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "core/error.h"

namespace poseidon {
namespace {

// How often the destructor looks whether a device has failed.
constexpr std::chrono::milliseconds kTick(100);

size_t FloatsIn(std::span<const std::span<float>> blobs) {
  size_t floats = 0;
  for (const std::span<float> blob : blobs) floats += blob.size();
  return floats;
}

}  // namespace

// What is on its way, and what has come. Callbacks of the devices share it, so it outlives them.
class DeviceStage::Arrivals {
 public:
  Arrivals(LayerExchange& exchange, size_t layers, size_t replicas)
      : replicas_(replicas), missing_(layers), exchange_(&exchange) {
    on_host_.reserve(layers);
  }

  // Each replica will say once that its copies of the layer are done. A layer's next values may
  // leave for the device before the word that the last ones are there, on which nothing depends, is
  // here.
  void Expect(int layer, CopyDirection direction) {
    const std::lock_guard lock(mutex_);
    Missing(layer, direction) += replicas_;
    under_way_ += replicas_;
  }

  void Arrive(int layer, CopyDirection direction) {
    const std::lock_guard lock(mutex_);
    if (--under_way_ == 0) all_done_.notify_all();
    if (--Missing(layer, direction) > 0) return;
    if (direction == CopyDirection::kToHost) on_host_.push_back(layer);
    if (exchange_ != nullptr) exchange_->Wake();
  }

  // Layers whose gradients have come to the host since the last call.
  void Take(std::vector<int>& layers) {
    layers.clear();
    const std::lock_guard lock(mutex_);
    layers.swap(on_host_);
  }

  bool IsUnderWay(int layer, CopyDirection direction) {
    const std::lock_guard lock(mutex_);
    return Missing(layer, direction) > 0;
  }

  // Waits a tick at most; whether nothing is under way.
  bool AwaitAll() {
    std::unique_lock lock(mutex_);
    return all_done_.wait_for(lock, kTick, [&] { return under_way_ == 0; });
  }

  // The exchange may go.
  void Close() {
    const std::lock_guard lock(mutex_);
    exchange_ = nullptr;
  }

 private:
  size_t& Missing(int layer, CopyDirection direction) {
    return missing_[layer][static_cast<size_t>(direction)];
  }

  size_t replicas_;
  std::mutex mutex_;
  std::condition_variable all_done_;
  std::vector<std::array<size_t, 2>> missing_;  // words of replicas, by layer and direction
  std::vector<int> on_host_;
  size_t under_way_ = 0;  // all of missing_
  LayerExchange* exchange_;
};

struct DeviceStage::Layer {
  // A replica each.
  std::vector<std::unique_ptr<DeviceEvent>> gradient_ready;
  std::vector<std::unique_ptr<DeviceEvent>> values_there;
  int64_t wanted = 0;    // the iteration whose values the device needs next
  int64_t moved = 0;     // whose values are there, or on their way
  bool leaving = false;  // the gradient is on its way to the host
  std::shared_ptr<const void> gradient_owner;
  std::shared_ptr<const void> values_owner;
};

DeviceStage::DeviceStage(LayerExchange& exchange, std::vector<DeviceReplica> replicas,
                         LocalReduction* reduction)
    : exchange_(exchange), replicas_(std::move(replicas)), reduction_(reduction) {
  CHECK(!replicas_.empty());
  CHECK(replicas_.size() == 1 || reduction_ != nullptr);
  const size_t layers = replicas_[0].layers.size();
  arrivals_ = std::make_shared<Arrivals>(exchange, layers, replicas_.size());
  arrived_.reserve(layers);
  for (size_t l = 0; l < layers; ++l) {
    Layer& layer = *layers_.emplace_back(std::make_unique<Layer>());
    layer.wanted = exchange.iteration();
    layer.moved = layer.wanted - 1;
    for (const DeviceReplica& replica : replicas_) {
      CHECK_EQ(replica.layers.size(), layers);
      layer.gradient_ready.push_back(replica.device->MakeEvent());
      layer.values_there.push_back(replica.device->MakeEvent());
    }
  }
}

DeviceStage::~DeviceStage() {
  try {
    while (!arrivals_->AwaitAll()) CheckDevices();
  } catch (const Error& error) {
    LOG(WARNING) << error.what();
  }
  arrivals_->Close();
}

void DeviceStage::GradientReady(int layer, std::span<const DeviceStream> compute) {
  CHECK_EQ(compute.size(), replicas_.size());
  Layer& state = *layers_[layer];
  CHECK(!state.leaving && state.moved == state.wanted) << "no WaitFresh before GradientReady";
  state.leaving = true;
  ++state.wanted;
  SendToHost(layer, compute);
  Pump();
}

void DeviceStage::SendToHost(int layer, std::span<const DeviceStream> compute) {
  Layer& state = *layers_[layer];
  const LayerExchange::Buffers host = exchange_.buffers(layer);
  state.gradient_owner = host.owner;
  arrivals_->Expect(layer, CopyDirection::kToHost);
  for (size_t r = 0; r < replicas_.size(); ++r) {
    Device& device = *replicas_[r].device;
    device.Record(*state.gradient_ready[r], compute[r]);
    device.Wait(device.copy_stream(CopyDirection::kToHost), *state.gradient_ready[r]);
  }
  const bool factors = host.gradient.dense.empty();
  if (factors) {
    SendFactors(layer, host.gradient);
  } else {
    SendGradient(layer, host.gradient.dense);
  }
  for (const DeviceReplica& replica : replicas_) {
    replica.device->Notify(
        replica.device->copy_stream(CopyDirection::kToHost),
        [=, arrivals = arrivals_] { arrivals->Arrive(layer, CopyDirection::kToHost); });
  }
}

void DeviceStage::SendFactors(int layer, const GradientBuffers& host) {
  for (size_t r = 0; r < replicas_.size(); ++r) {
    Device& device = *replicas_[r].device;
    const DeviceStream stream = device.copy_stream(CopyDirection::kToHost);
    const DeviceLayer& from = replicas_[r].layers[layer];
    CHECK_EQ(from.u.size() * replicas_.size(), host.u.size());
    CHECK_EQ(from.v.size() * replicas_.size(), host.v.size());
    device.Copy(stream, &host.u[r * from.u.size()], from.u.data(), from.u.size_bytes());
    device.Copy(stream, &host.v[r * from.v.size()], from.v.data(), from.v.size_bytes());
  }
}

void DeviceStage::SendGradient(int layer, std::span<float> host) {
  if (reduction_ != nullptr) {
    EachBlob(layer, &DeviceLayer::gradient, CopyDirection::kToHost,
             [&] { reduction_->ReduceScatter(members_); });
  }
  for (const DeviceReplica& replica : replicas_) {
    CopyShare(replica, replica.layers[layer].gradient, host, CopyDirection::kToHost);
  }
}

void DeviceStage::SendToDevice(int layer) {
  Layer& state = *layers_[layer];
  const LayerExchange::Buffers host = exchange_.buffers(layer);
  state.values_owner = host.owner;
  arrivals_->Expect(layer, CopyDirection::kToDevice);
  for (const DeviceReplica& replica : replicas_) {
    CopyShare(replica, replica.layers[layer].values, host.values, CopyDirection::kToDevice);
  }
  if (reduction_ != nullptr) {
    EachBlob(layer, &DeviceLayer::values, CopyDirection::kToDevice,
             [&] { reduction_->AllGather(members_); });
  }
  for (size_t r = 0; r < replicas_.size(); ++r) {
    Device& device = *replicas_[r].device;
    const DeviceStream stream = device.copy_stream(CopyDirection::kToDevice);
    device.Record(*state.values_there[r], stream);
    device.Notify(stream,
                  [=, arrivals = arrivals_] { arrivals->Arrive(layer, CopyDirection::kToDevice); });
  }
  state.moved = state.wanted;
}

void DeviceStage::EachBlob(int layer, std::vector<std::span<float>> DeviceLayer::*blobs,
                           CopyDirection direction, const std::function<void()>& reduce) {
  const size_t count = (replicas_[0].layers[layer].*blobs).size();
  for (size_t b = 0; b < count; ++b) {
    members_.clear();
    for (const DeviceReplica& replica : replicas_) {
      members_.push_back(
          {(replica.layers[layer].*blobs)[b], replica.device->copy_stream(direction)});
    }
    reduce();
  }
}

void DeviceStage::CopyShare(const DeviceReplica& replica, std::span<const std::span<float>> blobs,
                            std::span<float> host, CopyDirection direction) {
  CHECK_EQ(FloatsIn(blobs), host.size());
  const DeviceStream stream = replica.device->copy_stream(direction);
  const auto index = static_cast<size_t>(&replica - replicas_.data());
  for (const std::span<float> blob : blobs) {
    const LocalShare share = ShareOf(blob.size(), replicas_.size(), index);
    const std::span<float> on_device = blob.subspan(share.begin, share.size);
    const std::span<float> on_host = host.subspan(share.begin, share.size);
    host = host.subspan(blob.size());
    if (share.size == 0) continue;
    const bool leaves = direction == CopyDirection::kToHost;
    replica.device->Copy(stream, leaves ? on_host.data() : on_device.data(),
                         leaves ? on_device.data() : on_host.data(), on_host.size_bytes());
  }
}

void DeviceStage::Pump() {
  CheckDevices();
  arrivals_->Take(arrived_);
  for (const int layer : arrived_) {
    layers_[layer]->leaving = false;
    exchange_.GradientReady(layer);
  }
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = *layers_[l];
    // What leaves is a sign that the device still reads the old values.
    const bool may_change = layer.moved < layer.wanted && !layer.leaving;
    if (may_change && exchange_.IsFresh(static_cast<int>(l), layer.wanted)) {
      SendToDevice(static_cast<int>(l));
    }
  }
}

void DeviceStage::WaitFresh(int layer, std::span<const DeviceStream> compute) {
  CHECK_EQ(compute.size(), replicas_.size());
  const Layer& state = *layers_[layer];
  WaitUntil([&] { return state.moved == state.wanted; },
            "the values of layer " + exchange_.LayerName(layer) + ", iteration " +
                std::to_string(state.wanted));
  for (size_t r = 0; r < replicas_.size(); ++r) {
    replicas_[r].device->Wait(compute[r], *state.values_there[r]);
  }
}

void DeviceStage::EndIteration() {
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = *layers_[l];
    if (!layer.leaving) continue;
    WaitUntil([&] { return !layer.leaving; },
              "the gradient of layer " + exchange_.LayerName(static_cast<int>(l)) + ", iteration " +
                  std::to_string(layer.wanted - 1) + ", to come from " +
                  replicas_[0].device->name());
  }
}

void DeviceStage::PlanChanged() {
  for (const auto& layer : layers_) {
    CHECK(!layer->leaving) << "no EndIteration before PlanChanged";
    layer->moved = layer->wanted - 1;
  }
}

void DeviceStage::Drain() {
  for (size_t l = 0; l < layers_.size(); ++l) {
    const int layer = static_cast<int>(l);
    WaitUntil(
        [&] {
          return !layers_[l]->leaving && !arrivals_->IsUnderWay(layer, CopyDirection::kToDevice);
        },
        "the copies of layer " + exchange_.LayerName(layer));
  }
}

void DeviceStage::WaitUntil(const std::function<bool()>& done, const std::string& waiting_for) {
  exchange_.WaitUntil(
      [&] {
        Pump();
        return done();
      },
      waiting_for);
}

void DeviceStage::CheckDevices() const {
  for (const DeviceReplica& replica : replicas_) {
    try {
      replica.device->Check();
    } catch (const Error& error) {
      throw Error(error.exit_code(), "worker's " + Unfinished() + ": " + error.what());
    }
  }
}

std::string DeviceStage::Unfinished() const {
  std::string layers;
  for (size_t l = 0; l < layers_.size(); ++l) {
    const int layer = static_cast<int>(l);
    const auto add = [&](CopyDirection direction, const char* what) {
      if (!arrivals_->IsUnderWay(layer, direction)) return;
      layers += (layers.empty() ? "" : ", ") + std::string(what) + exchange_.LayerName(layer);
    };
    add(CopyDirection::kToHost, "gradient of layer ");
    add(CopyDirection::kToDevice, "values of layer ");
  }
  return layers.empty() ? "device" : layers + " can't be copied";
}

}  // namespace poseidon
