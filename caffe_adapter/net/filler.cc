#include "caffe_adapter/net/filler.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/random.h"

namespace poseidon {
namespace {

using Values = std::span<float>;

// How many inputs feed an output, outputs an input feeds, or their mean: n of xavier and msra.
double Fan(const caffe::FillerParameter& filler, const Shape& shape) {
  const auto count = static_cast<double>(Count(shape));
  const double fan_in = count / static_cast<double>(shape[0]);
  const double fan_out = shape.size() > 1 ? count / static_cast<double>(shape[1]) : count;
  switch (filler.variance_norm()) {
    case caffe::FillerParameter::FAN_OUT:
      return fan_out;
    case caffe::FillerParameter::AVERAGE:
      return (fan_in + fan_out) / 2;
    default:
      return fan_in;
  }
}

void FillUniform(double min, double max, Random& random, Values values) {
  for (float& value : values) {
    value = static_cast<float>(min + (max - min) * random.Uniform());
  }
}

void FillGaussian(double mean, double deviation, Random& random, Values values) {
  for (float& value : values) {
    value = static_cast<float>(mean + deviation * random.Gaussian());
  }
}

void Constant(const caffe::FillerParameter& filler, const Shape&, Random&, Values values) {
  for (float& value : values) value = filler.value();
}

void Uniform(const caffe::FillerParameter& filler, const Shape&, Random& random, Values values) {
  FillUniform(filler.min(), filler.max(), random, values);
}

// With `sparse`, a weight is kept with probability sparse / outputs, as in Caffe.
void Gaussian(const caffe::FillerParameter& filler, const Shape& shape, Random& random,
              Values values) {
  FillGaussian(filler.mean(), filler.std(), random, values);
  if (filler.sparse() < 0) return;
  const double kept = static_cast<double>(filler.sparse()) / static_cast<double>(shape[0]);
  for (float& value : values) {
    if (random.Uniform() >= kept) value = 0;
  }
}

// Glorot, Bengio: Understanding the difficulty of training deep feedforward neural networks, 2010.
void Xavier(const caffe::FillerParameter& filler, const Shape& shape, Random& random,
            Values values) {
  const double limit = std::sqrt(3 / Fan(filler, shape));
  FillUniform(-limit, limit, random, values);
}

// He, Zhang, Ren, Sun: Delving deep into rectifiers, 2015.
void Msra(const caffe::FillerParameter& filler, const Shape& shape, Random& random, Values values) {
  FillGaussian(0, std::sqrt(2 / Fan(filler, shape)), random, values);
}

// Positive weights that sum to 1 for each output.
void PositiveUnitball(const caffe::FillerParameter&, const Shape& shape, Random& random,
                      Values values) {
  FillUniform(0, 1, random, values);
  const auto inputs = static_cast<size_t>(Count(shape) / shape[0]);
  for (size_t begin = 0; begin < values.size(); begin += inputs) {
    double sum = 0;
    for (const float value : values.subspan(begin, inputs)) sum += value;
    for (float& value : values.subspan(begin, inputs)) value = static_cast<float>(value / sum);
  }
}

// The kernel by which a deconvolution interpolates.
void Bilinear(const caffe::FillerParameter&, const Shape& shape, Random&, Values values) {
  const auto width = static_cast<size_t>(shape[3]);
  const double half = std::ceil(static_cast<double>(width) / 2);
  const double center = (static_cast<double>(width) - 1) / (2 * half);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto x = static_cast<double>(i % width);
    const auto y = static_cast<double>(i / width % width);
    values[i] =
        static_cast<float>((1 - std::abs(x / half - center)) * (1 - std::abs(y / half - center)));
  }
}

struct FillerType {
  const char* name;
  void (*fill)(const caffe::FillerParameter& filler, const Shape& shape, Random& random,
               Values values);
};

constexpr FillerType kFillerTypes[] = {
    {"constant", Constant}, {"uniform", Uniform}, {"gaussian", Gaussian},
    {"xavier", Xavier},     {"msra", Msra},       {"positive_unitball", PositiveUnitball},
    {"bilinear", Bilinear},
};

const FillerType* FindFillerType(const std::string& name) {
  for (const FillerType& type : kFillerTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

}  // namespace

std::string FillerError(const caffe::FillerParameter& filler, const Shape& shape) {
  if (!FindFillerType(filler.type())) {
    std::string names;
    for (const FillerType& type : kFillerTypes) names += std::string(" ") + type.name;
    return "unknown filler type \"" + filler.type() + "\"; known are" + names;
  }
  if (filler.sparse() != -1 && (filler.type() != "gaussian" || filler.sparse() < 0)) {
    return "sparse must be left out or, for a gaussian filler, at least 0";
  }
  const bool constant = filler.type() == "constant" || filler.type() == "uniform" ||
                        (filler.type() == "gaussian" && filler.sparse() < 0);
  if (shape.empty() && !constant) {
    return "a " + filler.type() + " filler can't fill a scalar";
  }
  if (filler.type() == "bilinear" && (shape.size() != 4 || shape[2] != shape[3])) {
    return "a bilinear filler needs a blob of 4 axes with square kernels, not " + ToString(shape);
  }
  return "";
}

void Fill(const caffe::FillerParameter& filler, const Shape& shape, uint64_t seed,
          std::span<float> values) {
  const std::string error = FillerError(filler, shape);
  if (!error.empty()) throw ConfigError(error);
  Random random(seed);
  FindFillerType(filler.type())->fill(filler, shape, random, values);
}

uint64_t BlobSeed(uint64_t seed, const std::string& layer, int blob) {
  return DeriveSeed(DeriveSeed(seed, layer), static_cast<uint64_t>(blob));
}

void FillLayer(const LayerDescription& layer, uint64_t seed, std::span<float> values) {
  for (size_t i = 0; i < layer.parameters.size(); ++i) {
    const ParameterDescription& parameter = layer.parameters[i];
    if (parameter.owner) continue;
    const size_t count = Count(parameter.shape);
    if (parameter.first_values.empty()) {
      Fill(parameter.filler, parameter.shape, BlobSeed(seed, layer.name(), static_cast<int>(i)),
           values.first(count));
    } else {
      std::copy(parameter.first_values.begin(), parameter.first_values.end(), values.begin());
    }
    values = values.subspan(count);
  }
}

}  // namespace poseidon
