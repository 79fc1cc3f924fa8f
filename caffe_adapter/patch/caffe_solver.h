// CaffeSolver: a stock Caffe solver as DistributedSolver sees one. Needs Caffe's headers.
#pragma once

#include <caffe/caffe.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "caffe_adapter/patch/distributed_solver.h"

namespace poseidon {

// Blobs are copied between host memory and wherever Caffe has them: the host in CPU mode, else the
// GPU. One thread, the solver's.
class CaffeSolver : public PatchedSolver {
 public:
  // The net, its blobs and their multipliers are fixed from now on. `solver` must outlive this.
  explicit CaffeSolver(::caffe::Solver<float>& solver);

  const ModelSpec& model() const override { return model_; }
  int passes() const override { return solver_.param().iter_size(); }
  void GetValues(int layer, std::span<float> values) override;
  void SetValues(int layer, std::span<const float> values) override;
  void GetGradient(int layer, std::span<float> gradient) override;
  void SetGradient(int layer, std::span<const float> gradient) override;
  void GetFactors(int layer, std::span<float> u, std::span<float> v) override;

  // The layer of the model that layer `index` of the net is, if it learns.
  std::optional<int> LayerOf(int index) const;
  // The weighted losses of the net's last forward pass.
  float Loss() const;

 private:
  using Blob = ::caffe::Blob<float>;

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
  // Of the values that are never synchronised: they must be the same on all workers.
  std::string FixedValues(const std::vector<std::vector<OwnedBlob>>& blobs) const;

  ::caffe::Solver<float>& solver_;
  // Kept alive: a script's solver may be gone when the last parameters are read.
  const boost::shared_ptr<::caffe::Net<float>> owned_net_;
  const ::caffe::Net<float>& net_;
  ModelSpec model_;
  std::vector<Layer> layers_;    // of the model
  std::map<int, int> layer_of_;  // by index in the net
};

}  // namespace poseidon
