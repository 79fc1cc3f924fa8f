#include "client/staging/dense_staging.h"

#include <glog/logging.h>

#include <utility>

namespace poseidon {
namespace {

size_t StateFloats(const DenseUpdate& update) {
  return static_cast<size_t>(OptimizerStatePerParameter(*update.rule));
}

}  // namespace

DenseStaging::DenseStaging(LayerExchange& exchange, const std::vector<DeviceReplica>& replicas,
                           LocalReduction* reduction)
    : exchange_(exchange),
      replicas_(replicas),
      reduction_(reduction),
      layers_(replicas[0].layers.size()) {
  for (size_t l = 0; l < layers_.size(); ++l) {
    const int layer = static_cast<int>(l);
    std::optional<DenseUpdate> update = exchange.dense_update(layer);
    if (!update) continue;
    layers_[l] = Layer{*std::move(update), {}};
    for (size_t r = 0; r < replicas_.size(); ++r) {
      CHECK(replicas_[r].parameter_update != nullptr) << "nobody updates the layer";
      AddPieces(layer, r, layers_[l]->pieces.emplace_back());
    }
  }
  for (size_t r = 0; r < replicas_.size(); ++r) AllocateState(r);
}

void DenseStaging::AddPieces(int layer, size_t replica, std::vector<Piece>& pieces) {
  const DenseUpdate& update = layers_[layer]->description;
  const DeviceLayer& on_device = replicas_[replica].layers[layer];
  const std::span<float> values = exchange_.buffers(layer).values;
  const std::span<float> state = exchange_.optimizer_state(layer);
  CHECK_EQ(on_device.values.size(), on_device.gradient.size());
  size_t before = 0;  // floats of the layer's blobs before this one
  for (size_t b = 0; b < on_device.values.size(); ++b) {
    const std::span<float> blob = on_device.values[b];
    CHECK_EQ(blob.size(), on_device.gradient[b].size());
    const LocalShare share = ShareOf(blob.size(), replicas_.size(), replica);
    size_t at = share.begin;
    for (const UpdateSegment& segment :
         CutSegments(update.segments, static_cast<int64_t>(before + share.begin),
                     static_cast<int64_t>(share.size))) {
      const auto size = static_cast<size_t>(segment.size);
      const size_t floats = StateFloats(update);
      pieces.push_back({.gradient = on_device.gradient[b].subspan(at, size),
                        .values = blob.subspan(at, size),
                        .state = {},
                        .values_on_host = values.subspan(before + at, size),
                        .state_on_host = state.subspan((before + at) * floats, size * floats),
                        .multipliers = segment.multipliers});
      at += size;
    }
    before += blob.size();
  }
}

void DenseStaging::AllocateState(size_t replica) {
  size_t floats = 0;
  const auto each = [&](const auto& visit) {
    for (std::optional<Layer>& layer : layers_) {
      if (!layer) continue;
      for (Piece& piece : layer->pieces[replica]) visit(piece);
    }
  };
  each([&](const Piece& piece) { floats += piece.state_on_host.size(); });
  if (floats == 0) return;
  const DeviceMemory& memory =
      state_.emplace_back(replicas_[replica].device->Allocate(floats * sizeof(float)));
  std::span<float> rest(reinterpret_cast<float*>(memory.get()), floats);
  each([&](Piece& piece) {
    piece.state = rest.first(piece.state_on_host.size());
    rest = rest.subspan(piece.state.size());
  });
}

void DenseStaging::CopyState(int layer, CopyDirection direction) {
  for (size_t r = 0; r < replicas_.size(); ++r) {
    runs_.clear();
    for (const Piece& piece : layers_[layer]->pieces[r]) {
      AddRun({piece.state, piece.state_on_host}, runs_);
    }
    CopyRuns(*replicas_[r].device, direction, runs_);
  }
}

void DenseStaging::LoadOptimizerState(int layer) { CopyState(layer, CopyDirection::kToDevice); }

void DenseStaging::CopyGradients(std::span<const int> layers, int64_t iteration) {
  for (size_t r = 0; r < replicas_.size(); ++r) {
    runs_.clear();
    for (const int layer : layers) {
      AddShare(replicas_[r].layers[layer].gradient, exchange_.reduced_gradient(layer, iteration), r,
               replicas_.size(), runs_);
    }
    CopyRuns(*replicas_[r].device, CopyDirection::kToDevice, runs_);
  }
}

void DenseStaging::Update(int layer, int64_t iteration) {
  const Layer& state = *layers_[layer];
  const DenseUpdate& update = state.description;
  for (size_t r = 0; r < replicas_.size(); ++r) {
    const DeviceReplica& on = replicas_[r];
    for (const Piece& piece : state.pieces[r]) {
      on.parameter_update->Apply({.rule = *update.rule,
                                  .iteration = iteration,
                                  .multipliers = piece.multipliers,
                                  .gradient_scale = update.gradient_scale},
                                 piece.gradient, piece.values, piece.state,
                                 on.device->update_stream());
    }
  }
  if (reduction_ == nullptr) return;
  for (size_t b = 0; b < replicas_[0].layers[layer].values.size(); ++b) {
    members_.clear();
    for (const DeviceReplica& on : replicas_) {
      members_.push_back({on.layers[layer].values[b], on.device->update_stream()});
    }
    reduction_->AllGather(members_);
  }
}

void DenseStaging::CopyToHost(int layer) {
  for (size_t r = 0; r < replicas_.size(); ++r) {
    runs_.clear();
    for (const Piece& piece : layers_[layer]->pieces[r]) {
      AddRun({piece.values, piece.values_on_host}, runs_);
    }
    CopyRuns(*replicas_[r].device, CopyDirection::kToHost, runs_);
  }
  CopyState(layer, CopyDirection::kToHost);
}

}  // namespace poseidon
