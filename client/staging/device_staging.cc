#include "client/staging/device_staging.h"

#include <glog/logging.h>

#include <chrono>
#include <future>
#include <utility>

#include "core/error.h"
#include "device/profiler_range.h"

namespace poseidon {
namespace {

// How often the destructor looks whether a device has failed.
constexpr std::chrono::milliseconds kTick(100);

size_t FloatsIn(std::span<const std::span<float>> blobs) {
  size_t floats = 0;
  for (const std::span<float> blob : blobs) floats += blob.size();
  return floats;
}

const char* NameOf(CopyDirection direction) {
  return direction == CopyDirection::kToHost ? "copy to host" : "copy to device";
}

// Until all that is in the device's own streams is done; throws Error if the device fails.
void AwaitStreams(Device& device) {
  for (const DeviceStream stream :
       {device.copy_stream(CopyDirection::kToHost), device.copy_stream(CopyDirection::kToDevice),
        device.update_stream()}) {
    const auto done = std::make_shared<std::promise<void>>();
    std::future<void> future = done->get_future();
    device.Notify(stream, [done] { done->set_value(); });
    while (future.wait_for(kTick) != std::future_status::ready) device.Check();
  }
}

}  // namespace

struct DeviceStaging::Layer {
  // A replica each.
  std::vector<std::unique_ptr<DeviceEvent>> gradient_ready;
  std::vector<std::unique_ptr<DeviceEvent>> values_there;
  // Around the first replica's wait for values of the iteration `awaited`.
  std::unique_ptr<DeviceEvent> wait_begins;
  std::unique_ptr<DeviceEvent> wait_ends;
  int64_t awaited = -1;
  int64_t wanted = 0;    // the iteration whose values the device needs next
  int64_t moved = 0;     // whose values are there, or on their way
  bool leaving = false;  // the gradient is on its way to the host
  std::shared_ptr<const void> gradient_owner;
  std::shared_ptr<const void> values_owner;
  // Of layers that devices update: they have the plan's first values; they have made others of them
  // that the host has not.
  bool loaded = false;
  bool host_is_behind = false;
  // What profilers call the layer's way to the host, and back.
  std::string gradient_name;
  std::string values_name;
};

DeviceStaging::DeviceStaging(LayerExchange& exchange, std::vector<DeviceReplica> replicas,
                             LocalReduction* reduction, Admission admission)
    : exchange_(exchange),
      replicas_(std::move(replicas)),
      reduction_(reduction),
      admission_(std::move(admission)),
      trace_(exchange.trace()) {
  CHECK(!replicas_.empty());
  CHECK(replicas_.size() == 1 || reduction_ != nullptr);
  const size_t layers = replicas_[0].layers.size();
  arrivals_ = std::make_shared<CopyArrivals>(exchange, layers, replicas_.size());
  arrived_.reserve(layers);
  for (size_t l = 0; l < layers; ++l) {
    Layer& layer = *layers_.emplace_back(std::make_unique<Layer>());
    layer.wait_begins = replicas_[0].device->MakeTimedEvent();
    layer.wait_ends = replicas_[0].device->MakeTimedEvent();
    layer.wanted = exchange.iteration();
    layer.moved = layer.wanted - 1;
    layer.gradient_name = "gradient of " + exchange.LayerName(static_cast<int>(l));
    layer.values_name = "values of " + exchange.LayerName(static_cast<int>(l));
    for (const DeviceReplica& replica : replicas_) {
      CHECK_EQ(replica.layers.size(), layers);
      layer.gradient_ready.push_back(replica.device->MakeEvent());
      layer.values_there.push_back(replica.device->MakeEvent());
    }
  }
  MakeFactorStaging();
  MakePackStaging();
  MakeFeedbackStaging();
}

void DeviceStaging::MakeFactorStaging() {
  std::vector<FactorReplica> replicas;
  for (const DeviceReplica& replica : replicas_) {
    if (replica.factor_update == nullptr) continue;
    FactorReplica& updated =
        replicas.emplace_back(FactorReplica{replica.device, replica.factor_update, {}});
    for (const DeviceLayer& layer : replica.layers) updated.blobs.push_back(layer.values);
  }
  CHECK(replicas.empty() || replicas.size() == replicas_.size());
  factors_.reset();  // its memory first
  factors_.emplace(exchange_, std::move(replicas), trace_);
  for (size_t l = 0; l < layers_.size(); ++l) {
    const int layer = static_cast<int>(l);
    CHECK(factors_->Has(layer) || !exchange_.product_update(layer)) << "nobody updates the layer";
  }
}

void DeviceStaging::MakePackStaging() {
  std::vector<PackingReplica> replicas;
  for (const DeviceReplica& replica : replicas_) {
    replicas.push_back({replica.device, replica.packer});
  }
  packing_.reset();  // its memory first
  packing_.emplace(exchange_, std::move(replicas), layers_.size());
}

void DeviceStaging::MakeFeedbackStaging() {
  const DeviceReplica& first = replicas_[0];
  std::vector<std::vector<std::span<float>>> gradients;
  for (const DeviceLayer& layer : first.layers) gradients.push_back(layer.gradient);
  feedback_.reset();  // its memory first
  feedback_.emplace(exchange_.packed_chunks(), PackingReplica{first.device, first.packer},
                    gradients);
  if (!feedback_->empty()) ExpectOther(first);
}

void DeviceStaging::ExpectOther(const DeviceReplica& replica) {
  arrivals_->ExpectOther();
  replica.device->Notify(replica.device->copy_stream(CopyDirection::kToHost),
                         [arrivals = arrivals_] { arrivals->ArriveOther(); });
}

DeviceStaging::~DeviceStaging() {
  for (const DeviceReplica& replica : replicas_) {
    try {
      AwaitStreams(*replica.device);
    } catch (const Error& error) {
      LOG(WARNING) << error.what();
    }
  }
  arrivals_->Close();
}

void DeviceStaging::GradientReady(int layer, std::span<const DeviceStream> compute) {
  CHECK_EQ(compute.size(), replicas_.size());
  Layer& state = *layers_[layer];
  CHECK(!state.leaving && state.moved == state.wanted) << "no WaitFresh before GradientReady";
  state.leaving = true;
  ++state.wanted;
  SendToHost(layer, compute);
  Pump();
}

void DeviceStaging::SendToHost(int layer, std::span<const DeviceStream> compute) {
  Layer& state = *layers_[layer];
  const ProfilerRange range(state.gradient_name.c_str());
  const LayerExchange::Buffers host = exchange_.buffers(layer);
  state.gradient_owner = host.owner;
  for (size_t r = 0; r < replicas_.size(); ++r) {
    Device& device = *replicas_[r].device;
    device.Record(*state.gradient_ready[r], compute[r]);
    device.Wait(device.copy_stream(CopyDirection::kToHost), *state.gradient_ready[r]);
  }
  const bool factors = host.gradient.dense.empty();
  if (factors) {
    Traced(NameOf(CopyDirection::kToHost), layer, CopyDirection::kToHost,
           [&] { SendFactors(layer, host.gradient); });
  } else {
    SendGradient(layer, host.gradient.dense);
  }
  // Not before: if a device refuses a copy, nobody will say that it is done.
  arrivals_->Expect(layer, CopyDirection::kToHost);
  for (const DeviceReplica& replica : replicas_) {
    replica.device->Notify(
        replica.device->copy_stream(CopyDirection::kToHost),
        [=, arrivals = arrivals_] { arrivals->Arrive(layer, CopyDirection::kToHost); });
  }
}

void DeviceStaging::SendFactors(int layer, const GradientBuffers& host) {
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

void DeviceStaging::SendGradient(int layer, std::span<float> host) {
  using Step = void (LocalReduction::*)(std::span<const LocalReduction::Member>);
  const auto reduce = [&](const char* name, Step step) {
    Traced(name, layer, CopyDirection::kToHost, [&] {
      EachBlob(layer, &DeviceLayer::gradient, CopyDirection::kToHost,
               [&] { (reduction_->*step)(members_); });
    });
  };
  const bool feedback = feedback_->Has(layer);
  if (reduction_ != nullptr) reduce("reduce-scatter", &LocalReduction::ReduceScatter);
  if (reduction_ != nullptr && feedback) reduce("all-gather", &LocalReduction::AllGather);
  Traced(NameOf(CopyDirection::kToHost), layer, CopyDirection::kToHost, [&] {
    if (feedback) return feedback_->Send(layer);
    for (size_t r = 0; r < replicas_.size(); ++r) {
      const DeviceReplica& replica = replicas_[r];
      if (packing_->Has(layer)) {
        packing_->Send(layer, r, replica.layers[layer].gradient);
      } else {
        CopyShare(replica, replica.layers[layer].gradient, host, CopyDirection::kToHost);
      }
    }
  });
}

void DeviceStaging::SendToDevice(int layer) {
  Layer& state = *layers_[layer];
  const ProfilerRange range(state.values_name.c_str());
  const LayerExchange::Buffers host = exchange_.buffers(layer);
  state.values_owner = host.owner;
  const bool updates = factors_->Has(layer) && state.loaded;
  if (updates) {
    factors_->Apply(layer, state.wanted - 1);
    state.host_is_behind = true;
  } else {
    CopyValues(layer, host.values);
  }
  arrivals_->Expect(layer, CopyDirection::kToDevice);
  for (size_t r = 0; r < replicas_.size(); ++r) {
    Device& device = *replicas_[r].device;
    const DeviceStream stream =
        updates ? device.update_stream() : device.copy_stream(CopyDirection::kToDevice);
    device.Record(*state.values_there[r], stream);
    device.Notify(stream,
                  [=, arrivals = arrivals_] { arrivals->Arrive(layer, CopyDirection::kToDevice); });
  }
  state.moved = state.wanted;
}

void DeviceStaging::CopyValues(int layer, std::span<float> host) {
  if (factors_->Has(layer)) {
    factors_->LoadOptimizerState(layer);
    layers_[layer]->loaded = true;
  }
  Traced(NameOf(CopyDirection::kToDevice), layer, CopyDirection::kToDevice, [&] {
    for (const DeviceReplica& replica : replicas_) {
      CopyShare(replica, replica.layers[layer].values, host, CopyDirection::kToDevice);
    }
  });
  if (reduction_ != nullptr) {
    Traced("all-gather", layer, CopyDirection::kToDevice, [&] {
      EachBlob(layer, &DeviceLayer::values, CopyDirection::kToDevice,
               [&] { reduction_->AllGather(members_); });
    });
  }
}

void DeviceStaging::SyncToHost() {
  for (size_t layer = 0; layer < layers_.size(); ++layer) SyncToHost(static_cast<int>(layer));
}

void DeviceStaging::SyncToHost(int layer) {
  Layer& state = *layers_[layer];
  const std::string what = "the values of layer " + exchange_.LayerName(layer) + " to come from " +
                           replicas_[0].device->name();
  if (state.loaded) {  // else the host has what it published, or has yet to get
    // All replicas': a switch of plan may follow, and updates under way are still the old one's.
    WaitUntil([&] { return IsOnDevices(layer); }, what);
  }
  const bool values = std::exchange(state.host_is_behind, false);
  if (values) factors_->CopyToHost(layer);
  const bool residuals = feedback_->CopyToHost(layer);
  if (!values && !residuals) return;
  ExpectOther(replicas_[0]);
  WaitUntil([&] { return !arrivals_->IsOtherUnderWay(); }, what);
}

void DeviceStaging::Traced(const char* name, int layer, CopyDirection direction,
                           const std::function<void()>& work) {
  if (!trace_.on()) return work();
  begins_.clear();
  for (const DeviceReplica& replica : replicas_) {
    begins_.push_back(trace_.Begin(*replica.device, replica.device->copy_stream(direction)));
  }
  work();
  const int64_t wanted = layers_[layer]->wanted;
  for (size_t r = 0; r < replicas_.size(); ++r) {
    Device& device = *replicas_[r].device;
    const std::string number = replicas_.size() > 1 ? " " + std::to_string(r) : "";
    trace_.End(device, device.copy_stream(direction), begins_[r],
               {.name = name,
                .layer = exchange_.LayerName(layer),
                .track = NameOf(direction) + number,
                .iteration = direction == CopyDirection::kToHost ? wanted - 1 : wanted});
  }
}

void DeviceStaging::EachBlob(int layer, std::vector<std::span<float>> DeviceLayer::*blobs,
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

void DeviceStaging::CopyShare(const DeviceReplica& replica, std::span<const std::span<float>> blobs,
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

void DeviceStaging::Pump() {
  CheckDevices();
  arrivals_->Take(arrived_);
  for (const int layer : arrived_) {
    layers_[layer]->leaving = false;
    RecordExposedTime();  // those of the forward pass, which is over
    exchange_.GradientReady(layer);
  }
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = *layers_[l];
    // What leaves is a sign that the device still reads the old values.
    const bool may_change = layer.moved < layer.wanted && !layer.leaving;
    if (may_change && MayLeave(static_cast<int>(l))) SendToDevice(static_cast<int>(l));
  }
}

bool DeviceStaging::MayLeave(int layer) {
  const int64_t wanted = layers_[layer]->wanted;
  return exchange_.IsFresh(layer, wanted) && (!admission_ || admission_(layer, wanted));
}

void DeviceStaging::WaitFresh(int layer, std::span<const DeviceStream> compute) {
  CHECK_EQ(compute.size(), replicas_.size());
  Layer& state = *layers_[layer];
  // Whoever asks again for the same values finds them behind the first wait.
  const bool stands_still =
      std::exchange(state.awaited, state.wanted) != state.wanted && !IsOnDevices(layer);
  if (stands_still) replicas_[0].device->Record(*state.wait_begins, compute[0]);
  WaitUntil([&] { return state.moved == state.wanted; },
            "the values of layer " + exchange_.LayerName(layer) + ", iteration " +
                std::to_string(state.wanted));
  for (size_t r = 0; r < replicas_.size(); ++r) {
    replicas_[r].device->Wait(compute[r], *state.values_there[r]);
  }
  if (!stands_still) return;
  replicas_[0].device->Record(*state.wait_ends, compute[0]);
  waits_.push_back(layer);
}

bool DeviceStaging::IsOnDevices(int layer) const {
  const Layer& state = *layers_[layer];
  return state.moved == state.wanted && !arrivals_->IsUnderWay(layer, CopyDirection::kToDevice);
}

void DeviceStaging::RecordExposedTime() {
  const auto booked = [&](int layer) {
    const Layer& state = *layers_[layer];
    const std::optional<Duration> stood_still =
        replicas_[0].device->Elapsed(*state.wait_begins, *state.wait_ends);
    if (stood_still) exchange_.AddExposed(*stood_still);
    return stood_still.has_value();
  };
  std::erase_if(waits_, booked);
}

void DeviceStaging::EndIteration() {
  for (size_t l = 0; l < layers_.size(); ++l) {
    const Layer& layer = *layers_[l];
    if (!layer.leaving) continue;
    WaitUntil([&] { return !layer.leaving; },
              "the gradient of layer " + exchange_.LayerName(static_cast<int>(l)) + ", iteration " +
                  std::to_string(layer.wanted - 1) + ", to come from " +
                  replicas_[0].device->name());
  }
}

void DeviceStaging::PlanChanged() {
  for (const auto& layer : layers_) {
    CHECK(!layer->leaving) << "no EndIteration before PlanChanged";
  }
  Drain();  // what the old plan's device memory is used by
  for (const auto& layer : layers_) {
    layer->moved = layer->wanted - 1;
    layer->loaded = false;
    layer->host_is_behind = false;
  }
  MakeFactorStaging();
  MakePackStaging();
  MakeFeedbackStaging();
}

void DeviceStaging::Drain() {
  for (size_t l = 0; l < layers_.size(); ++l) {
    const int layer = static_cast<int>(l);
    WaitUntil(
        [&] {
          return !layers_[l]->leaving && !arrivals_->IsUnderWay(layer, CopyDirection::kToDevice) &&
                 !arrivals_->IsOtherUnderWay();
        },
        "the copies of layer " + exchange_.LayerName(layer));
  }
}

void DeviceStaging::WaitUntil(const std::function<bool()>& done, const std::string& waiting_for) {
  exchange_.WaitUntil(
      [&] {
        Pump();
        return done();
      },
      waiting_for);
}

void DeviceStaging::CheckDevices() const {
  for (const DeviceReplica& replica : replicas_) {
    try {
      replica.device->Check();
    } catch (const Error& error) {
      throw Error(error.exit_code(), "worker's " + Unfinished() + ": " + error.what());
    }
  }
}

std::string DeviceStaging::Unfinished() const {
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
