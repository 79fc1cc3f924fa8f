// Caffe's fillers: the first values of a layer's parameters.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "caffe_adapter/net/net.h"
#include "caffe_adapter/net/shape.h"
#include "proto/caffe.pb.h"

namespace poseidon {

// Why `filler` can't fill a blob of `shape`, or "" if it can.
std::string FillerError(const caffe::FillerParameter& filler, const Shape& shape);

// Fills a blob of `shape` with what Caffe's filler of that type gives: constant, uniform, gaussian
// (also sparse), xavier, msra, positive_unitball, bilinear. A seed gives the same values on every
// platform (gaussian and msra: as far as its logarithm and cosine round alike). Values differ from
// Caffe's of the same seed, which depend on its random library. `values` may also be some of the
// blob's rows (shape[0] of them are the whole), whose fan and sparsity are then the blob's. Throws
// ConfigError(FillerError).
void Fill(const caffe::FillerParameter& filler, const Shape& shape, uint64_t seed,
          std::span<float> values);

// Fills the parameters that a layer owns, which lie one after the other in `values`, by their
// fillers or with the first values that they have.
void FillLayer(const LayerDescription& layer, uint64_t seed, std::span<float> values);

// The seed for blob `blob` of a layer, so that its values depend on no other layer.
uint64_t BlobSeed(uint64_t seed, const std::string& layer, int blob);

}  // namespace poseidon
