// CaffeSolver: a stock Caffe solver as DistributedSolver sees one. Needs Caffe's headers.
#pragma once

#include <caffe/caffe.hpp>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "caffe_adapter/patch/distributed_solver.h"

namespace poseidon {

// Blobs are where Caffe has them: on the host in CPU mode, else on the GPU. One thread, the
// solver's.
class CaffeSolver : public PatchedSolver, private SolverOnDevice {
 public:
  // The net, its blobs and their multipliers are fixed from now on. `device` is the GPU that Caffe
  // computes on, with its update; null in CPU mode. (Without it a GPU's gradients are copied while
  // Caffe waits.) All must outlive this. Throws ConfigError where several workers would read the
  // same images.
  CaffeSolver(::caffe::Solver<float>& solver, Device* device, FactorUpdate* factor_update);

  // The net's gradients are in memory of their own again.
  ~CaffeSolver() override;

  const ModelSpec& model() const override { return model_; }
  int passes() const override { return solver_.param().iter_size(); }
  void PlaceGradient(int layer, std::span<float> memory) override;
  void NeedGradient(int layer, bool needed) override;
  void GetValues(int layer, std::span<float> values) override;
  void SetValues(int layer, std::span<const float> values) override;
  void GetGradient(int layer, std::span<float> gradient) override;
  void SetGradient(int layer, std::span<const float> gradient) override;
  void GetFactors(int layer, std::span<float> u, std::span<float> v) override;
  SolverOnDevice* on_device() override { return device_ == nullptr ? nullptr : this; }

  // The layer of the model that layer `index` of the net is, if it learns.
  std::optional<int> LayerOf(int index) const;
  // The weighted losses of the net's last forward pass.
  float Loss() const;

 private:
  using Blob = ::caffe::Blob<float>;

  // Caffe's work is in CUDA's default stream.
  Device& device() override { return *device_; }
  DeviceStream stream() const override { return nullptr; }
  FactorUpdate* factor_update() override { return factor_update_; }
  std::vector<std::span<float>> GradientOnDevice(int layer) override;
  Factors FactorsOnDevice(int layer) override;

  // An inner product's top and bottom. Throws ConfigError unless its factors have so many floats.
  struct Product {
    const Blob& top;
    const Blob& bottom;
  };
  Product ProductOf(int layer, size_t u, size_t v) const;

  struct Layer {
    int index = 0;  // in the net
    std::vector<Blob*> blobs;
  };

  // By the net's layers: the blobs that each owns, with their multipliers and whether others use
  // them, too.
  struct OwnedBlob {
    Blob* blob = nullptr;
    float lr_mult = 1;
    float decay_mult = 1;
    bool shared = false;
  };
  std::vector<std::vector<OwnedBlob>> OwnedBlobs() const;
  void AddLayer(int index, const std::vector<OwnedBlob>& blobs);
  // Whether the layer's gradient is a product of two factors.
  bool IsProduct(int index, const std::vector<OwnedBlob>& blobs) const;
  int64_t Batch() const;
  // A fingerprint of the values that are never synchronized: it must be the same on all workers.
  std::string FixedValues(const std::vector<std::vector<OwnedBlob>>& blobs) const;

  ::caffe::Solver<float>& solver_;
  Device* device_;
  FactorUpdate* factor_update_;
  // Kept alive: a script's solver may be gone when the last parameters are read.
  const boost::shared_ptr<::caffe::Net<float>> owned_net_;
  const ::caffe::Net<float>& net_;
  ModelSpec model_;
  std::vector<Layer> layers_;    // of the model
  std::map<int, int> layer_of_;  // by index in the net
  std::set<Blob*> placed_;       // whose gradients are in memory of the session
};

}  // namespace poseidon
