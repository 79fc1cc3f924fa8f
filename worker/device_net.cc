#include "worker/device_net.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "core/error.h"
#include "proto/rate_advice.h"
#include "worker/loss_check.h"
#include "worker/pass_gradient.h"

namespace poseidon {
namespace {

// Layers begin at 64 bytes, as vector units of CPUs and GPUs like them. So in the order of the
// model those of a bucket follow each other on the device as on the host, if they have that many
// floats, as most nets' layers have; what follows each other is copied as one.
constexpr size_t kAlignedFloats = 16;

struct DeviceArithmetic {
  ComputeDevice& device;

  void AddInto(std::span<float> sum, std::span<const float> addend) const {
    device.AddInto(sum, addend);
  }
  void Scale(std::span<float> floats, float factor) const { device.Scale(floats, factor); }
  void Clear(std::span<float> floats) const { device.Scale(floats, 0); }
};

std::span<float> Allocate(Device& device, size_t floats, std::vector<DeviceMemory>& owners) {
  if (floats == 0) return {};
  const DeviceMemory& memory = owners.emplace_back(device.Allocate(floats * sizeof(float)));
  return {reinterpret_cast<float*>(memory.get()), floats};
}

// One block for spans of so many floats each.
std::vector<std::span<float>> AllocateInOrder(Device& device, const std::vector<size_t>& floats,
                                              std::vector<DeviceMemory>& owners) {
  const auto rounded = [](size_t count) {
    return (count + kAlignedFloats - 1) / kAlignedFloats * kAlignedFloats;
  };
  size_t all = 0;
  for (const size_t count : floats) all += rounded(count);
  std::span<float> rest = Allocate(device, all, owners);
  std::vector<std::span<float>> spans;
  for (const size_t count : floats) {
    spans.push_back(rest.first(count));
    rest = rest.subspan(rounded(count));
  }
  return spans;
}

}  // namespace

DeviceNet::DeviceNet(const std::vector<Replica>& replicas, LocalReduction* reduction,
                     WorkerSession& session, int64_t most_passes,
                     std::unique_ptr<DeferredLayers> deferred)
    : session_(session),
      reduction_(reduction),
      most_passes_(most_passes),
      trace_(session.trace()),
      deferred_(std::move(deferred)),
      statistics_(*replicas[0].engine, session.recovers(), replicas[0].device),
      arrivals_(session.exchange()) {
  for (const Replica& replica : replicas) {
    Member& member = replicas_.emplace_back();
    member.device = replica.device;
    member.engine = replica.engine;
    member.forward_ends = replica.device->device().MakeEvent();
    streams_.push_back(replica.device->stream());
    AllocateValues(member);
  }
  MakeStaging();
}

DeviceNet::~DeviceNet() {
  staging_.reset();
  for (const Member& replica : replicas_) {
    try {
      replica.device->Wait();
    } catch (const std::exception& error) {
      LOG(WARNING) << error.what();
    }
  }
}

void DeviceNet::AllocateValues(Member& member) {
  member.layers.resize(member.engine->model().layers_size());
  std::vector<size_t> floats;
  for (size_t l = 0; l < member.layers.size(); ++l) {
    floats.push_back(session_.values(static_cast<int>(l)).size());
  }
  const std::vector<std::span<float>> values =
      AllocateInOrder(member.device->device(), floats, member.value_memory);
  for (size_t l = 0; l < member.layers.size(); ++l) member.layers[l].values = values[l];
  member.device->RunAndWait([&member] {
    for (size_t l = 0; l < member.layers.size(); ++l) {
      member.engine->BindParameters(static_cast<int>(l), member.layers[l].values);
    }
  });
}

void DeviceNet::AllocateGradients(Member& member) {
  Device& device = member.device->device();
  std::vector<DeviceMemory>& owners = member.gradient_memory;
  const size_t replicas = replicas_.size();
  std::vector<size_t> floats;
  size_t largest = 0;
  for (size_t l = 0; l < member.layers.size(); ++l) {
    floats.push_back(session_.gradient(static_cast<int>(l)).dense.size());
    largest = std::max(largest, floats.back());
  }
  const std::vector<std::span<float>> dense = AllocateInOrder(device, floats, owners);
  for (size_t l = 0; l < member.layers.size(); ++l) {
    const GradientBuffers host = session_.gradient(static_cast<int>(l));
    Layer& layer = member.layers[l];
    layer.dense = dense[l];
    layer.u = Allocate(device, host.u.size() / replicas, owners);
    layer.v = Allocate(device, host.v.size() / replicas, owners);
  }
  if (most_passes_ > 1) member.pass_gradient = Allocate(device, largest, owners);
}

void DeviceNet::FreeGradients() {
  // Graphs have memory of their own, and write gradients where those will not be any more.
  RunAll([](Engine& engine) {
    engine.SetPauses(std::nullopt);
    engine.ReleaseMemory();
  });
  AwaitLaunches();
  for (Member& member : replicas_) {
    for (Layer& layer : member.layers) layer.dense = layer.u = layer.v = {};
    member.pass_gradient = {};
    member.gradient_memory.clear();
  }
}

void DeviceNet::MakeStaging() {
  std::vector<DeviceReplica> on_devices;
  for (Member& member : replicas_) {
    AllocateGradients(member);
    DeviceReplica& replica = on_devices.emplace_back();
    replica.device = &member.device->device();
    replica.factor_update = member.device->factor_update();
    replica.parameter_update = member.device->parameter_update();
    replica.packer = member.device->packer();
    for (const Layer& layer : member.layers) {
      replica.layers.push_back({{layer.values}, {layer.dense}, layer.u, layer.v});
    }
  }
  DeviceStaging::Admission admission;
  if (deferred_ != nullptr) {
    // A layer's values are none of an iteration before its deferred update.
    admission = [this](int layer, int64_t iteration) {
      return iteration == session_.iteration() && deferred_->Update(layer);
    };
  }
  staging_ = std::make_unique<DeviceStaging>(session_.exchange(), std::move(on_devices), reduction_,
                                             std::move(admission));
  SetPauses();
}

void DeviceNet::SetPauses() {
  std::optional<std::set<int>> pauses;
  // The first of several passes has the iteration's gradient for a target, others another's.
  if (!trace_.on() && most_passes_ == 1) {
    std::set<int> first_layers;
    for (const LayerExchange::Bucket& bucket : session_.exchange().buckets()) {
      first_layers.insert(bucket.first_layer);
    }
    pauses.emplace();
    for (int step = 0; step < engine().steps(); ++step) {
      const std::optional<int> layer = engine().layer_of_step(step);
      if (measures_steps_ || (layer && first_layers.contains(*layer))) pauses->insert(step);
    }
  }
  RunAll([pauses](Engine& engine) { engine.SetPauses(pauses); });
}

void DeviceNet::MeasureSteps(bool measures) {
  measures_steps_ = measures;
  SetPauses();
}

void DeviceNet::RunAll(const std::function<void(Engine& engine)>& work) {
  for (const Member& replica : replicas_) {
    replica.device->Run([work, engine = replica.engine] { work(*engine); });
  }
}

void DeviceNet::WaitAll() {
  Guard([this] {
    std::exception_ptr failure;
    for (const Member& replica : replicas_) {
      try {
        replica.device->Wait();
      } catch (...) {
        failure = std::current_exception();
      }
    }
    if (failure != nullptr) std::rethrow_exception(failure);
  });
}

void DeviceNet::Guard(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error&) {
    for (const Member& replica : replicas_) replica.device->RethrowFromWork();
    throw;
  }
}

int64_t DeviceNet::batch() const {
  return std::accumulate(
      replicas_.begin(), replicas_.end(), int64_t{0},
      [](int64_t sum, const Member& replica) { return sum + replica.engine->batch(); });
}

void DeviceNet::SetValues(const NetValues& values) {
  RunAll([&values](Engine& engine) { engine.SetValues(values); });
  WaitAll();
}

void DeviceNet::PublishValues() {
  const Member& first = replicas_[0];
  for (size_t l = 0; l < first.layers.size(); ++l) {
    const std::span<float> host = session_.values(static_cast<int>(l));
    first.device->device().Copy(first.device->stream(), host.data(), first.layers[l].values.data(),
                                host.size_bytes());
  }
  first.device->Wait();
}

void DeviceNet::SetShare(const DataShare& share) {
  const auto replicas = static_cast<int64_t>(replicas_.size());
  for (int64_t r = 0; r < replicas; ++r) {
    replicas_[r].device->Run([own = ShareOfReplica(share, r, replicas),
                              engine = replicas_[r].engine] { engine->SetShare(own); });
  }
  WaitAll();
}

void DeviceNet::LoadBatch(int64_t pass) {
  RunAll([pass](Engine& engine) { engine.LoadBatch(pass); });
}

void DeviceNet::WaitFresh(int layer) {
  Guard([&] {
    AwaitLaunches();
    staging_->WaitFresh(layer, streams_);
  });
}

void DeviceNet::AwaitLaunches() {
  for (const Member& replica : replicas_) replica.device->AwaitLaunches();
}

void DeviceNet::Forward(int step) {
  Traced("forward", step, [&] { RunAll([step](Engine& engine) { engine.Forward(step); }); });
}

void DeviceNet::Backward(int step, const PassOfIteration& pass) {
  if (step + 1 == engine().steps()) EndForward();
  const std::optional<int> index = engine().layer_of_step(step);
  Traced("backward", step, [&] {
    for (const Member& replica : replicas_) {
      GradientBuffers iteration;
      GradientBuffers target;
      if (index) {
        iteration = IterationBuffers(replica, *index);
        target = BuffersOfPass(iteration, replica.pass_gradient, most_passes_, pass.index);
      }
      replica.device->Run(
          [step, target, engine = replica.engine] { engine->Backward(step, target); });
      if (index && most_passes_ > 1) {
        AddPass(iteration, replica.pass_gradient, most_passes_, pass,
                DeviceArithmetic{*replica.device});
      }
    }
  });
}

void DeviceNet::EndForward() {
  CheckLosses();
  AwaitLaunches();
  for (const Member& replica : replicas_) {
    replica.device->device().Record(*replica.forward_ends, replica.device->stream());
  }
}

void DeviceNet::CheckLosses() {
  for (Member& replica : replicas_) {
    if (replica.device->cuda_device()) continue;
    const auto check = std::make_shared<std::packaged_task<float()>>(
        [engine = replica.engine, rank = session_.rank(), iteration = session_.iteration(),
         // The check may be under way when the session takes the next plan to go back with.
         advice = DivergenceAdvice(session_.plan(), session_.model().update_rule())] {
          const float loss = engine->loss();
          if (!std::isfinite(loss)) {
            ThrowLossNotFinite(rank, iteration, loss, engine->FirstNotFinite(), advice);
          }
          return loss;
        });
    replica.loss = check->get_future().share();
    replica.device->Run([check, loss = replica.loss] {
      (*check)();
      loss.get();  // throws what the check has thrown, and so nothing is done behind it
    });
  }
}

GradientBuffers DeviceNet::IterationBuffers(const Member& member, int layer) const {
  const Layer& memory = member.layers[layer];
  if (session_.gradient(layer).dense.empty()) return {{}, memory.u, memory.v};
  return {memory.dense, {}, {}};
}

void DeviceNet::GradientReady(int layer) {
  Guard([&] {
    AwaitLaunches();
    staging_->GradientReady(layer, streams_);
  });
}

void DeviceNet::EndIteration() {
  Guard([&] { staging_->EndIteration(); });
}

void DeviceNet::SyncToHost() {
  Guard([&] { staging_->SyncToHost(); });
}

// As good as DeviceStaging::PlanChanged, but the new plan may send factors where the old one did
// not. What the old one has needed goes first: there may be no room for both.
void DeviceNet::PlanChanged() {
  if (deferred_ != nullptr) deferred_->PlanChanged();
  if (staging_ != nullptr) AwaitStreams("the devices to finish what was before a change of plan");
  staging_.reset();
  FreeGradients();
  MakeStaging();
}

// The passes that are under way read values that the session is about to change, and copies write
// gradients where those of an iteration that is done again will be.
void DeviceNet::Abandon() {
  AwaitStreams("the devices to finish an iteration that is to be done again");
  staging_.reset();
}

void DeviceNet::AwaitStreams(const std::string& waiting_for) {
  Guard([&] {
    AwaitLaunches();
    std::vector<ArrivalThread::Moment> moments;
    for (const Member& replica : replicas_) {
      Device& device = replica.device->device();
      for (const DeviceStream stream :
           {replica.device->stream(), device.packing_stream(),
            device.copy_stream(CopyDirection::kToHost),
            device.copy_stream(CopyDirection::kToDevice), device.update_stream()}) {
        if (ends_.size() == moments.size()) ends_.push_back(device.MakeEvent());
        DeviceEvent& end = *ends_[moments.size()];
        device.Record(end, stream);
        moments.push_back({&device, &end});
      }
    }
    Await(std::move(moments), waiting_for);
  });
}

void DeviceNet::Await(std::vector<ArrivalThread::Moment> moments, const std::string& waiting_for) {
  arrivals_.Expect(0, std::move(moments));
  ++awaited_;  // besides those whose wait was given up to go back
  std::vector<int> came;
  session_.exchange().WaitUntil(
      [&] {
        arrivals_.Take(came);
        awaited_ -= came.size();
        return awaited_ == 0;
      },
      waiting_for);
}

float DeviceNet::Loss() {
  AwaitForward();
  return std::accumulate(
      replicas_.begin(), replicas_.end(), 0.0F, [](float sum, const Member& replica) {
        return sum + (replica.device->cuda_device() ? replica.engine->loss() : replica.loss.get());
      });
}

void DeviceNet::AwaitForward() {
  Guard([this] {
    AwaitLaunches();
    std::vector<ArrivalThread::Moment> moments;
    std::string names;
    for (const Member& replica : replicas_) {
      Device& device = replica.device->device();
      if (device.HasCome(*replica.forward_ends)) continue;
      moments.push_back({&device, replica.forward_ends.get()});
      names += (names.empty() ? "" : ", ") + device.name();
    }
    if (moments.empty()) return;
    Await(std::move(moments), "the forward pass of iteration " +
                                  std::to_string(session_.iteration()) + " to end on " + names);
  });
}

std::string DeviceNet::FirstNotFinite() {
  std::string found;
  for (const Member& replica : replicas_) {
    if (!found.empty()) break;
    replica.device->RunAndWait([&] { found = replica.engine->FirstNotFinite(); });
  }
  return found;
}

void DeviceNet::Synchronize() {
  RunAll([](Engine& engine) { engine.Synchronize(); });
  WaitAll();
  staging_->RecordExposedTime();
}

TestResult DeviceNet::Test() {
  TestResult result;
  replicas_[0].device->RunAndWait([&] { result = engine().Test(); });
  return result;
}

void DeviceNet::Traced(const char* name, int step, const std::function<void()>& work) {
  if (!trace_.on()) return work();
  Device& device = replicas_[0].device->device();
  replicas_[0].device->AwaitLaunches();
  const StreamTrace::Moment begin = trace_.Begin(device, streams_[0]);
  work();
  replicas_[0].device->AwaitLaunches();
  trace_.End(device, streams_[0], begin,
             {name, engine().step_name(step), "compute", session_.iteration(), {}, {}});
}

}  // namespace poseidon
