#include "caffe_adapter/patch/caffe_solver.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdio>

#include "core/error.h"

namespace poseidon {
namespace {

using Blob = ::caffe::Blob<float>;

enum class Part { kData, kDiff };

void CopyToHost(const Blob& blob, Part part, float* to) {
#ifndef CPU_ONLY
  if (::caffe::Caffe::mode() == ::caffe::Caffe::GPU) {
    const float* from = part == Part::kData ? blob.gpu_data() : blob.gpu_diff();
    ::caffe::caffe_gpu_memcpy(sizeof(float) * static_cast<size_t>(blob.count()), from, to);
    return;
  }
#endif
  const float* const from = part == Part::kData ? blob.cpu_data() : blob.cpu_diff();
  if (from != to) std::copy_n(from, blob.count(), to);
}

void CopyFromHost(const float* from, Part part, Blob& blob) {
#ifndef CPU_ONLY
  if (::caffe::Caffe::mode() == ::caffe::Caffe::GPU) {
    float* to = part == Part::kData ? blob.mutable_gpu_data() : blob.mutable_gpu_diff();
    ::caffe::caffe_gpu_memcpy(sizeof(float) * static_cast<size_t>(blob.count()), from, to);
    return;
  }
#endif
  float* const to = part == Part::kData ? blob.mutable_cpu_data() : blob.mutable_cpu_diff();
  if (from != to) std::copy_n(from, blob.count(), to);
}

void GatherBlobs(const std::vector<Blob*>& blobs, Part part, std::span<float> to) {
  float* place = to.data();
  for (const Blob* blob : blobs) {
    CopyToHost(*blob, part, place);
    place += blob->count();
  }
}

void ScatterBlobs(std::span<const float> from, Part part, const std::vector<Blob*>& blobs) {
  const float* place = from.data();
  for (Blob* blob : blobs) {
    CopyFromHost(place, part, *blob);
    place += blob->count();
  }
}

// The blob's gradient is at `memory`, or, if null, where Caffe allocates it when it is used.
void MoveGradient(Blob& blob, float* memory) {
  Blob there(blob.shape());
  if (memory != nullptr) there.diff()->set_cpu_data(memory);
  blob.ShareDiff(there);
}

// Caffe's ImageData, unlike Data and HDF5Data, does not skip what other workers read: all would
// train on the same images, which adds nothing to one of them. Other lists on other machines may be
// shuffled as well.
void CheckWorkersReadDifferentImages(const ::caffe::Net<float>& net) {
  if (::caffe::Caffe::solver_count() == 1) return;
  for (const auto& layer : net.layers()) {
    const ::caffe::LayerParameter& parameter = layer->layer_param();
    const ::caffe::ImageDataParameter& images = parameter.image_data_param();
    if (parameter.type() != "ImageData" || images.shuffle() || images.rand_skip() > 0) continue;
    throw ConfigError(
        "layer \"" + parameter.name() +
        "\" (ImageData): Caffe gives all workers the same images of a list that is "
        "not shuffled; write shuffle: true in its image_data_param, or put the images "
        "into a database (convert_imageset) and read it with a Data layer");
  }
}

}  // namespace

CaffeSolver::CaffeSolver(::caffe::Solver<float>& solver, Device* device,
                         FactorUpdate* factor_update)
    : solver_(solver),
      device_(device),
      factor_update_(factor_update),
      owned_net_(solver.net()),
      net_(*owned_net_) {
  CheckWorkersReadDifferentImages(net_);
  const std::vector<std::vector<OwnedBlob>> blobs = OwnedBlobs();
  model_.set_name(net_.name() + FixedValues(blobs));
  model_.set_batch(Batch() * passes());
  model_.set_iterations(solver.param().max_iter() - solver.iter());
  for (size_t index = 0; index < blobs.size(); ++index) {
    AddLayer(static_cast<int>(index), blobs[index]);
  }
}

CaffeSolver::~CaffeSolver() {
  for (Blob* blob : placed_) MoveGradient(*blob, nullptr);
}

std::vector<std::vector<CaffeSolver::OwnedBlob>> CaffeSolver::OwnedBlobs() const {
  std::vector<std::vector<OwnedBlob>> owned(net_.layers().size());
  const std::vector<int>& owners = net_.param_owners();
  size_t parameter = 0;  // in the order of layers and their blobs, as Net::AppendParam has them
  size_t learnable = 0;  // of those, the ones with an entry in params_lr()
  for (size_t index = 0; index < owned.size(); ++index) {
    for (size_t i = 0; i < net_.layers()[index]->blobs().size(); ++i, ++parameter) {
      if (owners[parameter] >= 0) continue;
      const bool shared = std::count(owners.begin(), owners.end(), static_cast<int>(parameter)) > 0;
      owned[index].push_back({.blob = net_.params()[parameter].get(),
                              .lr_mult = net_.params_lr()[learnable],
                              .decay_mult = net_.params_weight_decay()[learnable],
                              .shared = shared});
      ++learnable;
    }
  }
  return owned;
}

bool CaffeSolver::IsProduct(int index, const std::vector<OwnedBlob>& blobs) const {
  const ::caffe::LayerParameter& parameter = net_.layers()[index]->layer_param();
  if (parameter.type() != std::string("InnerProduct")) return false;
  if (parameter.inner_product_param().transpose()) return false;
  return blobs.size() == net_.layers()[index]->blobs().size() && blobs[0].lr_mult != 0 &&
         std::none_of(blobs.begin(), blobs.end(),
                      [](const OwnedBlob& blob) { return blob.shared; });
}

void CaffeSolver::AddLayer(int index, const std::vector<OwnedBlob>& blobs) {
  Layer layer;
  layer.index = index;
  LayerSpec spec;
  spec.set_name(net_.layer_names()[index]);
  spec.set_type(net_.layers()[index]->type());
  for (const OwnedBlob& owned : blobs) {
    if (owned.lr_mult == 0) continue;
    layer.blobs.push_back(owned.blob);
    BlobSpec& blob = *spec.add_blobs();
    for (const int extent : owned.blob->shape()) blob.add_shape(extent);
    blob.set_lr_mult(owned.lr_mult);
    blob.set_decay_mult(owned.decay_mult);
  }
  if (layer.blobs.empty()) return;
  if (IsProduct(index, blobs)) {
    const Blob& weights = *blobs[0].blob;
    InnerProductSpec& product = *spec.mutable_inner_product();
    product.set_outputs(weights.shape(0));
    product.set_inputs(weights.shape(1));
    product.set_rows(net_.bottom_vecs()[index][0]->count() / weights.shape(1) * passes());
  }
  layer_of_[index] = static_cast<int>(layers_.size());
  layers_.push_back(std::move(layer));
  *model_.add_layers() = std::move(spec);
}

int64_t CaffeSolver::Batch() const {
  for (size_t index = 0; index < net_.layers().size(); ++index) {
    if (!net_.bottom_vecs()[index].empty() || net_.top_vecs()[index].empty()) continue;
    const Blob& top = *net_.top_vecs()[index][0];
    return top.num_axes() > 0 ? top.shape(0) : 1;
  }
  return 1;
}

std::string CaffeSolver::FixedValues(const std::vector<std::vector<OwnedBlob>>& blobs) const {
  XXH64_hash_t hash = 0;
  bool any = false;
  for (const std::vector<OwnedBlob>& layer : blobs) {
    for (const OwnedBlob& owned : layer) {
      if (owned.lr_mult != 0) continue;
      any = true;
      hash = XXH64(owned.blob->cpu_data(), sizeof(float) * static_cast<size_t>(owned.blob->count()),
                   hash);
    }
  }
  if (!any) return "";
  char text[40];
  std::snprintf(text, sizeof text, ", fixed blobs %016llx", static_cast<unsigned long long>(hash));
  return text;
}

void CaffeSolver::GetValues(int layer, std::span<float> values) {
  GatherBlobs(layers_[layer].blobs, Part::kData, values);
}

void CaffeSolver::SetValues(int layer, std::span<const float> values) {
  ScatterBlobs(values, Part::kData, layers_[layer].blobs);
}

void CaffeSolver::PlaceGradient(int layer, std::span<float> memory) {
  if (::caffe::Caffe::mode() != ::caffe::Caffe::CPU) return;
  float* place = memory.data();
  for (Blob* blob : layers_[layer].blobs) {
    // Not one that other blobs add to, by name or within a recurrent layer: they would not follow.
    if (blob->diff().use_count() == 1) {
      MoveGradient(*blob, place);
      placed_.insert(blob);
    }
    place += blob->count();
  }
}

void CaffeSolver::NeedGradient(int layer, bool needed) {
  if (!model_.layers(layer).has_inner_product()) return;
  ::caffe::Layer<float>& in_net = *net_.layers()[layers_[layer].index];
  for (size_t i = 0; i < layers_[layer].blobs.size(); ++i) {
    in_net.set_param_propagate_down(static_cast<int>(i), needed);
  }
}

void CaffeSolver::GetGradient(int layer, std::span<float> gradient) {
  GatherBlobs(layers_[layer].blobs, Part::kDiff, gradient);
}

void CaffeSolver::SetGradient(int layer, std::span<const float> gradient) {
  ScatterBlobs(gradient, Part::kDiff, layers_[layer].blobs);
}

CaffeSolver::Product CaffeSolver::ProductOf(int layer, size_t u, size_t v) const {
  const int index = layers_[layer].index;
  const Blob& top = *net_.top_vecs()[index][0];
  const Blob& bottom = *net_.bottom_vecs()[index][0];
  if (static_cast<size_t>(top.count()) != u || static_cast<size_t>(bottom.count()) != v) {
    throw ConfigError("layer \"" + net_.layer_names()[index] +
                      "\": the batch has changed; a job needs the same in every "
                      "iteration");
  }
  return {top, bottom};
}

void CaffeSolver::GetFactors(int layer, std::span<float> u, std::span<float> v) {
  const Product product = ProductOf(layer, u.size(), v.size());
  CopyToHost(product.top, Part::kDiff, u.data());
  CopyToHost(product.bottom, Part::kData, v.data());
}

// What a layer without a GPU's code has computed on the host goes to the GPU here.
std::vector<std::span<float>> CaffeSolver::GradientOnDevice(int layer) {
  std::vector<std::span<float>> gradient;
  for (Blob* blob : layers_[layer].blobs) {
    gradient.emplace_back(blob->mutable_gpu_diff(), static_cast<size_t>(blob->count()));
  }
  return gradient;
}

SolverOnDevice::Factors CaffeSolver::FactorsOnDevice(int layer) {
  const InnerProductSpec& spec = model_.layers(layer).inner_product();
  const auto u = static_cast<size_t>(spec.rows() * spec.outputs() / passes());
  const auto v = static_cast<size_t>(spec.rows() * spec.inputs() / passes());
  const Product product = ProductOf(layer, u, v);
  return {.u = {product.top.gpu_diff(), u}, .v = {product.bottom.gpu_data(), v}};
}

std::optional<int> CaffeSolver::LayerOf(int index) const {
  const auto found = layer_of_.find(index);
  if (found == layer_of_.end()) return std::nullopt;
  return found->second;
}

float CaffeSolver::Loss() const {
  float loss = 0;
  const std::vector<float>& weights = net_.blob_loss_weights();
  for (size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] == 0) continue;
    const Blob& blob = *net_.blobs()[i];
    for (int j = 0; j < blob.count(); ++j) loss += weights[i] * blob.cpu_data()[j];
  }
  return loss;
}

}  // namespace poseidon
