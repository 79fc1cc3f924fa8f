// What Caffe's losses divide their sum by.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "proto/caffe.pb.h"

namespace poseidon {

// The mode that loss_param asks for, by `normalization` or its older form, `normalize`; else
// `missing`, the loss's own.
caffe::LossParameter::NormalizationMode NormalizationMode(
    const caffe::LossParameter& parameter, caffe::LossParameter::NormalizationMode missing);

// A scalar of the options given, at least 1: of outer x inner places, `counted` (of any shape) says
// which are not ignored.
at::Tensor LossNormalizer(caffe::LossParameter::NormalizationMode mode, int64_t outer,
                          int64_t inner, const at::Tensor& counted,
                          const at::TensorOptions& options);

}  // namespace poseidon
