#include "client/staging/device_staging.h"

#include <glog/logging.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "core/error.h"
#include "core/steady_now.h"
#include "device/profiler_range.h"

namespace poseidon {
namespace {

// How often a wait asks the devices whether they have failed. A failure in the way of a gradient is
// heard of at once.
constexpr Duration kTick = std::chrono::milliseconds(100);

// ArrivalThread's numbers are those of buckets, and this one of AwaitStreams.
constexpr int kStreams = -1;

DeviceStream ToHost(Device& device) { return device.copy_stream(CopyDirection::kToHost); }
DeviceStream ToDevice(Device& device) { return device.copy_stream(CopyDirection::kToDevice); }
DeviceStream Updates(Device& device) { return device.update_stream(); }

std::array<DeviceStream, 4> StreamsOf(Device& device) {
  return {device.packing_stream(), ToHost(device), ToDevice(device), Updates(device)};
}

}  // namespace

DeviceStaging::DeviceStaging(LayerExchange& exchange, std::vector<DeviceReplica> replicas,
                             LocalReduction* reduction, Admission admission)
    : exchange_(exchange),
      replicas_(std::move(replicas)),
      reduction_(reduction),
      admission_(std::move(admission)),
      trace_(exchange.trace()) {
  CHECK(!replicas_.empty());
  CHECK(replicas_.size() == 1 || reduction_ != nullptr);
  for (const DeviceReplica& replica : replicas_) {
    CHECK_EQ(replica.layers.size(), replicas_[0].layers.size());
    for (size_t s = 0; s < StreamsOf(*replica.device).size(); ++s) {
      ends_.push_back(replica.device->MakeEvent());
    }
  }
  MakeBuckets();
  arrivals_.emplace(exchange);
}

void DeviceStaging::MakeBuckets() {
  buckets_.clear();
  bucket_of_layer_.clear();
  wanting_.clear();
  for (const LayerExchange::Bucket& planned : exchange_.buckets()) {
    CHECK_EQ(planned.first_layer, static_cast<int>(bucket_of_layer_.size()));
    bucket_of_layer_.resize(bucket_of_layer_.size() + planned.layers, buckets_.size());
    wanting_.insert(buckets_.size());
    buckets_.push_back(std::make_unique<StagedBucket>(exchange_, planned, replicas_));
  }
  CHECK_EQ(bucket_of_layer_.size(), replicas_[0].layers.size());
  MakeFactorStaging();
  dense_.reset();  // its memory first
  dense_.emplace(exchange_, replicas_, reduction_);
  packing_.reset();
  packing_.emplace(exchange_, replicas_);
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
  for (size_t l = 0; l < bucket_of_layer_.size(); ++l) {
    const int layer = static_cast<int>(l);
    CHECK(factors_->Has(layer) || !exchange_.product_update(layer)) << "nobody updates the layer";
  }
}

void DeviceStaging::MakeFeedbackStaging() {
  const DeviceReplica& first = replicas_[0];
  std::vector<std::vector<std::span<float>>> gradients;
  for (const DeviceLayer& layer : first.layers) gradients.push_back(layer.gradient);
  feedback_.reset();  // its memory first
  feedback_.emplace(exchange_.packed_chunks(), PackingReplica{first.device, first.packer},
                    gradients);
}

DeviceStaging::~DeviceStaging() {
  for (const DeviceReplica& replica : replicas_) {
    try {
      for (const DeviceStream stream : StreamsOf(*replica.device)) {
        const std::unique_ptr<DeviceEvent> end = replica.device->MakeEvent();
        replica.device->Record(*end, stream);
        replica.device->Await(*end);
      }
    } catch (const Error& error) {
      LOG(WARNING) << error.what();
    }
  }
}

void DeviceStaging::GradientReady(int layer, std::span<const DeviceStream> compute) {
  CHECK_EQ(compute.size(), replicas_.size());
  StagedBucket& bucket = BucketOf(layer);
  CHECK(!bucket.leaving && bucket.moved == bucket.wanted) << "no WaitFresh before GradientReady";
  if (++bucket.ready == bucket.layers.size()) {
    bucket.ready = 0;
    Leave(bucket_of_layer_[layer], compute);
  }
  Pump();
}

void DeviceStaging::Leave(size_t number, std::span<const DeviceStream> compute) {
  StagedBucket& bucket = *buckets_[number];
  const ProfilerRange range(bucket.gradient_name.c_str());
  bucket.leaving = true;
  bucket.stays = std::all_of(bucket.layers.begin(), bucket.layers.end(),
                             [this](int layer) { return exchange_.gradient_stays(layer); });
  ++bucket.wanted;
  wanting_.insert(number);
  const bool uses_copies = !bucket.stays || reduction_ != nullptr;
  for (size_t r = 0; r < replicas_.size(); ++r) {
    Device& device = *replicas_[r].device;
    device.Record(*bucket.gradient_ready[r], compute[r]);
    if (uses_copies) device.Wait(ToHost(device), *bucket.gradient_ready[r]);
  }
  if (!bucket.stays) return SendToHost(number);
  if (reduction_ != nullptr) {
    ReduceGradients(bucket);
    for (size_t r = 0; r < replicas_.size(); ++r) {
      Device& device = *replicas_[r].device;
      device.Record(*bucket.gradient_ready[r], ToHost(device));
    }
  }
  HandOver(bucket);
}

void DeviceStaging::HandOver(StagedBucket& bucket) {
  bucket.leaving = false;
  RecordExposedTime();  // those of the forward pass, which is over
  for (auto layer = bucket.layers.rbegin(); layer != bucket.layers.rend(); ++layer) {
    exchange_.GradientReady(*layer);
  }
}

void DeviceStaging::SendToHost(size_t number) {
  StagedBucket& bucket = *buckets_[number];
  const LayerExchange::Buffers host = exchange_.buffers(bucket.layers[0]);
  bucket.gradient_owner = host.owner;
  if (host.gradient.dense.empty()) {
    CHECK_EQ(bucket.layers.size(), 1U);
    Traced("copy to host", "copy to host", bucket, bucket.wanted - 1, ToHost,
           [&] { SendFactors(bucket.layers[0], host.gradient); });
  } else {
    SendGradients(bucket);
  }
  for (size_t r = 0; r < replicas_.size(); ++r) {
    Device& device = *replicas_[r].device;
    device.Record(*bucket.on_host[r], ToHost(device));
  }
  // Not before: if a device refuses a copy, nobody waits for it.
  arrivals_->Expect(static_cast<int>(number), MomentsOf(replicas_, bucket.on_host));
}

void DeviceStaging::SendFactors(int layer, const GradientBuffers& host) {
  for (size_t r = 0; r < replicas_.size(); ++r) {
    Device& device = *replicas_[r].device;
    const DeviceLayer& from = replicas_[r].layers[layer];
    CHECK_EQ(from.u.size() * replicas_.size(), host.u.size());
    CHECK_EQ(from.v.size() * replicas_.size(), host.v.size());
    device.Copy(ToHost(device), &host.u[r * from.u.size()], from.u.data(), from.u.size_bytes());
    device.Copy(ToHost(device), &host.v[r * from.v.size()], from.v.data(), from.v.size_bytes());
  }
}

void DeviceStaging::ReduceGradients(const StagedBucket& bucket) {
  Traced("reduce-scatter", "copy to host", bucket, bucket.wanted - 1, ToHost,
         [&] { EachBlob(bucket, &DeviceLayer::gradient, ToHost, &LocalReduction::ReduceScatter); });
}

void DeviceStaging::SendGradients(const StagedBucket& bucket) {
  const auto& layers = bucket.layers;
  const auto feedback = [&](int layer) { return feedback_->Has(layer); };
  const bool has_feedback = std::any_of(layers.begin(), layers.end(), feedback);
  if (reduction_ != nullptr) ReduceGradients(bucket);
  if (reduction_ != nullptr && has_feedback) {
    Traced("all-gather", "copy to host", bucket, bucket.wanted - 1, ToHost,
           [&] { EachBlob(bucket, &DeviceLayer::gradient, ToHost, &LocalReduction::AllGather); });
    Device& first = *replicas_[0].device;
    first.Record(*bucket.gradient_ready[0], ToHost(first));
  }
  Traced("copy to host", "copy to host", bucket, bucket.wanted - 1, ToHost, [&] {
    if (has_feedback) feedback_->Send(layers, *bucket.gradient_ready[0]);
    for (size_t r = 0; r < replicas_.size(); ++r) {
      runs_.clear();
      for (const int layer : layers) {
        const std::vector<std::span<float>>& blobs = replicas_[r].layers[layer].gradient;
        if (feedback(layer)) continue;
        if (packing_->Has(layer)) {
          packing_->Send(layer, r, blobs);
        } else {
          AddShare(blobs, exchange_.buffers(layer).gradient.dense, r, replicas_.size(), runs_);
        }
      }
      CopyRuns(*replicas_[r].device, CopyDirection::kToHost, runs_);
    }
  });
}

bool DeviceStaging::HasUpdates(const StagedBucket& bucket) const {
  return factors_->Has(bucket.layers[0]) || dense_->Has(bucket.layers[0]);
}

void DeviceStaging::SendToDevice(StagedBucket& bucket) {
  const ProfilerRange range(bucket.values_name.c_str());
  bucket.values_owner = exchange_.buffers(bucket.layers[0]).owner;
  const bool updates = HasUpdates(bucket) && bucket.loaded;
  if (updates) {
    UpdateOnDevices(bucket);
    bucket.host_is_behind = true;
  } else {
    CopyValues(bucket);
  }
  for (size_t r = 0; r < replicas_.size(); ++r) {
    Device& device = *replicas_[r].device;
    device.Record(*bucket.values_there[r], updates ? Updates(device) : ToDevice(device));
  }
  bucket.moved = bucket.wanted;
  bucket.there = false;
}

void DeviceStaging::UpdateOnDevices(StagedBucket& bucket) {
  const int64_t iteration = bucket.wanted - 1;
  if (factors_->Has(bucket.layers[0])) return factors_->Apply(bucket.layers[0], iteration);
  if (!bucket.stays) {
    Traced("copy to device", "copy to device", bucket, bucket.wanted, ToDevice,
           [&] { dense_->CopyGradients(bucket.layers, iteration); });
  }
  for (size_t r = 0; r < replicas_.size(); ++r) {
    Device& device = *replicas_[r].device;
    if (!bucket.stays) device.Record(*bucket.reduced[r], ToDevice(device));
    device.Wait(Updates(device), bucket.stays ? *bucket.gradient_ready[r] : *bucket.reduced[r]);
  }
  Traced("update", "update on device", bucket, bucket.wanted, Updates, [&] {
    for (const int layer : bucket.layers) dense_->Update(layer, iteration);
  });
}

void DeviceStaging::CopyValues(StagedBucket& bucket) {
  if (HasUpdates(bucket)) {
    for (const int layer : bucket.layers) {
      if (dense_->Has(layer)) dense_->LoadOptimizerState(layer);
      if (factors_->Has(layer)) factors_->LoadOptimizerState(layer);
    }
    bucket.loaded = true;
  }
  Traced("copy to device", "copy to device", bucket, bucket.wanted, ToDevice, [&] {
    for (size_t r = 0; r < replicas_.size(); ++r) {
      runs_.clear();
      for (const int layer : bucket.layers) {
        AddShare(replicas_[r].layers[layer].values, exchange_.buffers(layer).values, r,
                 replicas_.size(), runs_);
      }
      CopyRuns(*replicas_[r].device, CopyDirection::kToDevice, runs_);
    }
  });
  if (reduction_ == nullptr) return;
  Traced("all-gather", "copy to device", bucket, bucket.wanted, ToDevice,
         [&] { EachBlob(bucket, &DeviceLayer::values, ToDevice, &LocalReduction::AllGather); });
}

void DeviceStaging::SyncToHost() {
  bool copies = false;
  for (const auto& bucket : buckets_) copies |= CopyToHost(*bucket);
  if (copies) AwaitStreams("values to come to the host");
}

bool DeviceStaging::CopyToHost(StagedBucket& bucket) {
  if (bucket.loaded) {  // else the host has what it published, or has yet to get
    WaitUntil(
        [&] { return bucket.moved == bucket.wanted; },
        "the values of layer " + bucket.name + ", iteration " + std::to_string(bucket.wanted));
  }
  bool copies = std::exchange(bucket.host_is_behind, false);
  if (copies) {
    for (size_t r = 0; r < replicas_.size(); ++r) {
      Device& device = *replicas_[r].device;
      device.Wait(ToHost(device), *bucket.values_there[r]);
    }
    for (const int layer : bucket.layers) {
      if (dense_->Has(layer)) dense_->CopyToHost(layer);
      if (factors_->Has(layer)) factors_->CopyToHost(layer);
    }
  }
  for (const int layer : bucket.layers) copies |= feedback_->CopyToHost(layer);
  return copies;
}

void DeviceStaging::AwaitStreams(const std::string& waiting_for) {
  std::vector<ArrivalThread::Moment> moments;
  for (const DeviceReplica& replica : replicas_) {
    for (const DeviceStream stream : StreamsOf(*replica.device)) {
      const DeviceEvent& end = *ends_[moments.size()];
      replica.device->Record(*ends_[moments.size()], stream);
      moments.push_back({replica.device, &end});
    }
  }
  awaits_streams_ = true;
  arrivals_->Expect(kStreams, std::move(moments));
  WaitUntil([&] { return !awaits_streams_; }, waiting_for);
}

void DeviceStaging::Traced(const char* name, const std::string& track, const StagedBucket& bucket,
                           int64_t iteration, StreamOf stream_of,
                           const std::function<void()>& work) {
  if (!trace_.on()) return work();
  begins_.clear();
  for (const DeviceReplica& replica : replicas_) {
    begins_.push_back(trace_.Begin(*replica.device, stream_of(*replica.device)));
  }
  work();
  for (size_t r = 0; r < replicas_.size(); ++r) {
    Device& device = *replicas_[r].device;
    const std::string number = replicas_.size() > 1 ? " " + std::to_string(r) : "";
    trace_.End(
        device, stream_of(device), begins_[r],
        {.name = name, .layer = bucket.name, .track = track + number, .iteration = iteration});
  }
}

void DeviceStaging::EachBlob(const StagedBucket& bucket,
                             std::vector<std::span<float>> DeviceLayer::*blobs, StreamOf stream_of,
                             Step step) {
  for (const int layer : bucket.layers) {
    for (size_t b = 0; b < (replicas_[0].layers[layer].*blobs).size(); ++b) {
      members_.clear();
      for (const DeviceReplica& replica : replicas_) {
        members_.push_back({(replica.layers[layer].*blobs)[b], stream_of(*replica.device)});
      }
      (reduction_->*step)(members_);
    }
  }
}

void DeviceStaging::Pump() {
  // Whoever hands over reads all news, also that more has come meanwhile: who waits for that would
  // not be woken again.
  while (TakeArrived()) {
    for (const int number : arrived_) {
      if (number == kStreams) {
        awaits_streams_ = false;
      } else {
        HandOver(*buckets_[number]);
      }
    }
  }
  std::erase_if(wanting_, [&](size_t number) {
    StagedBucket& bucket = *buckets_[number];
    // What leaves is a sign that the device still reads the old values.
    if (bucket.leaving || !MayLeave(bucket)) return false;
    SendToDevice(bucket);
    return true;
  });
}

bool DeviceStaging::TakeArrived() {
  try {
    arrivals_->Take(arrived_);
  } catch (const Error& error) {
    ThrowFailed(error);
  }
  return !arrived_.empty();
}

bool DeviceStaging::MayLeave(const StagedBucket& bucket) {
  return std::all_of(bucket.layers.begin(), bucket.layers.end(), [&](int layer) {
    return exchange_.IsFresh(layer, bucket.wanted) &&
           (!admission_ || admission_(layer, bucket.wanted));
  });
}

void DeviceStaging::WaitFresh(int layer, std::span<const DeviceStream> compute) {
  CHECK_EQ(compute.size(), replicas_.size());
  StagedBucket& bucket = BucketOf(layer);
  // Whoever asks again for the same values finds them behind the first wait.
  if (bucket.awaited == bucket.wanted) return;
  const bool stands_still = !bucket.booking && !IsOnDevices(bucket);
  if (stands_still) replicas_[0].device->Record(*bucket.wait_begins, compute[0]);
  WaitUntil([&] { return bucket.moved == bucket.wanted; },
            "the values of layer " + exchange_.LayerName(layer) + ", iteration " +
                std::to_string(bucket.wanted));
  for (size_t r = 0; r < replicas_.size(); ++r) {
    replicas_[r].device->Wait(compute[r], *bucket.values_there[r]);
  }
  bucket.awaited = bucket.wanted;
  if (!stands_still) return;
  replicas_[0].device->Record(*bucket.wait_ends, compute[0]);
  bucket.booking = true;
  waits_.push_back(&bucket);
}

bool DeviceStaging::IsOnDevices(StagedBucket& bucket) {
  return bucket.moved == bucket.wanted && LastMoveIsDone(bucket);
}

bool DeviceStaging::LastMoveIsDone(StagedBucket& bucket) {
  bucket.there = bucket.there || replicas_[0].device->HasCome(*bucket.values_there[0]);
  return bucket.there;
}

void DeviceStaging::RecordExposedTime() {
  std::erase_if(waits_, [&](StagedBucket* bucket) {
    const std::optional<Duration> stood_still =
        replicas_[0].device->Elapsed(*bucket->wait_begins, *bucket->wait_ends);
    if (!stood_still) return false;
    exchange_.AddExposed(*stood_still);
    bucket->booking = false;
    return true;
  });
}

void DeviceStaging::EndIteration() {
  // In the order in which they leave, so that the first that does not come is named.
  for (auto next = buckets_.rbegin(); next != buckets_.rend(); ++next) {
    StagedBucket* const bucket = next->get();
    if (!bucket->leaving) continue;
    WaitUntil([&] { return !bucket->leaving; },
              "the gradient of layer " + bucket->name + ", iteration " +
                  std::to_string(bucket->wanted - 1) + ", to come from " +
                  replicas_[0].device->name());
  }
}

void DeviceStaging::PlanChanged() {
  for (const auto& bucket : buckets_) {
    CHECK(!bucket->leaving && bucket->ready == 0) << "no EndIteration before PlanChanged";
  }
  Drain();  // what the old plan's device memory is used by
  RecordExposedTime();
  waits_.clear();
  MakeBuckets();
}

void DeviceStaging::Drain() {
  for (const auto& bucket : buckets_) {
    WaitUntil([&] { return !bucket->leaving; }, "the copies of layer " + bucket->name);
  }
  AwaitStreams("the copies of all layers");
}

void DeviceStaging::WaitUntil(const std::function<bool()>& done, const std::string& waiting_for) {
  exchange_.WaitUntil(
      [&] {
        CheckDevices();
        Pump();
        return done();
      },
      waiting_for);
}

void DeviceStaging::CheckDevices() {
  const Time now = SteadyNow();
  if (now - checked_ < kTick) return;
  checked_ = now;
  try {
    for (const DeviceReplica& replica : replicas_) replica.device->Check();
    if (reduction_ != nullptr) reduction_->Check();
  } catch (const Error& error) {
    ThrowFailed(error);
  }
}

void DeviceStaging::ThrowFailed(const Error& error) {
  throw Error(error.exit_code(), "worker's " + Unfinished() + ": " + error.what());
}

std::string DeviceStaging::Unfinished() {
  std::string layers;
  const auto add = [&](const char* what, const StagedBucket& bucket) {
    layers += (layers.empty() ? "" : ", ") + std::string(what) + bucket.name;
  };
  for (const auto& bucket : buckets_) {
    if (bucket->leaving) add("gradient of layer ", *bucket);
    if (!LastMoveIsDone(*bucket)) add("values of layer ", *bucket);
  }
  return layers.empty() ? "device" : layers + " can't be copied";
}

}  // namespace poseidon
