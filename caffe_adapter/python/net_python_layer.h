// A net's Python layer, made from what the net says of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "caffe_adapter/net/shape.h"
#include "caffe_adapter/python/python_layer.h"
#include "core/error.h"
#include "proto/caffe.pb.h"

namespace poseidon {

// The worker that a layer computes for.
struct PythonPlace {
  int64_t rank = 0;
  int64_t workers = 1;
};

// `layer` has its phase set, and its module is looked for in the directory of the net's file, which
// `where` names. Throws ConfigError.
std::unique_ptr<PythonLayer> MakeNetPythonLayer(const caffe::LayerParameter& layer,
                                                const std::vector<Shape>& bottoms,
                                                const Location& where,
                                                const PythonPlace& place = {});

// What a function of the layer ("forward") has thrown, as ConfigError: the traceback, and a last
// line that is enough alone. It names the layer, its place in the net and its class.
[[noreturn]] void ThrowPythonError(const PythonError& error, const std::string& function,
                                   const caffe::LayerParameter& layer, const Location& where);

}  // namespace poseidon
