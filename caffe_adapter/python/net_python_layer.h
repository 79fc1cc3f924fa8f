// A net's Python layer, made from what the net says of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "caffe_adapter/net/shape.h"
#include "caffe_adapter/python/python_layer.h"
#include "proto/caffe.pb.h"

namespace poseidon {

// The worker that a layer computes for.
struct PythonPlace {
  int64_t rank = 0;
  int64_t workers = 1;
};

// `layer` has its phase set, and its module is looked for in the directory of `net_file`. Throws
// std::runtime_error as MakePythonLayer, with the class before it.
std::unique_ptr<PythonLayer> MakeNetPythonLayer(const caffe::LayerParameter& layer,
                                                const std::vector<Shape>& bottoms,
                                                const std::string& net_file,
                                                const PythonPlace& place = {});

// "forward of pyloss.EuclideanLoss: ": what a layer's error is about.
std::string PythonCallName(const std::string& function, const caffe::LayerParameter& layer);

}  // namespace poseidon
