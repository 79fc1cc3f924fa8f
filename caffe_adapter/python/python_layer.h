// A Python layer: a class of the user's own in Python, derived from caffe.Layer.
//
// Python is in a library of its own, which is loaded where a net has such a layer. So programs
// start on machines without Python, and this header needs none either.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "caffe_adapter/net/shape.h"

namespace poseidon {

// What a layer is made from.
struct PythonLayerOptions {
  struct Bottom {
    std::string name;
    Shape shape;
  };

  std::string module;
  std::string layer;  // the class
  std::string param_str;
  std::string directory;  // where modules are looked for before PYTHONPATH; may be empty
  bool test = false;      // the phase
  int64_t rank = 0;       // of the worker, among all that train
  int64_t workers = 1;
  std::vector<Bottom> bottoms;
  std::vector<std::string> tops;
};

// A blob's values, for one pass. The layer sees them where they are; who keeps the array keeps the
// owner, too.
struct PythonMemory {
  float* values = nullptr;
  int64_t count = 0;
  bool writable = false;
  std::shared_ptr<const void> owner;
};

// Whatever a layer throws, and why there is none: in a line, with what to do where that is known.
class PythonError : public std::runtime_error {
 public:
  explicit PythonError(const std::string& what, std::string traceback = "")
      : std::runtime_error(what), traceback_(std::move(traceback)) {}
  // Through the user's code, lines each with an end; empty where it was not in there.
  const std::string& traceback() const { return traceback_; }

 private:
  std::string traceback_;
};

// A layer that has been set up and has its shapes. Throws PythonError. Any thread, one at a time.
class PythonLayer {
 public:
  // What the layer learns, with the values that setup gives.
  struct Parameter {
    Shape shape;
    std::vector<float> values;
  };

  virtual ~PythonLayer() = default;

  virtual const std::vector<Shape>& top_shapes() const = 0;
  virtual const std::vector<Parameter>& parameters() const = 0;
  virtual bool has_backward() const = 0;

  // Of the worker, from the next forward pass on.
  virtual void SetPlace(int64_t rank, int64_t workers) = 0;

  // Calls reshape and forward. Returns the tops' memory, which is the layer's: always the same, of
  // the shapes above.
  virtual std::vector<float*> Forward(int64_t iteration, const std::vector<PythonMemory>& bottoms,
                                      const std::vector<PythonMemory>& parameters) = 0;

  // After Forward. Returns the gradients of the bottoms, then of the parameters: memory of the
  // layer's that it next writes to in Forward. What backward does not write is 0.
  virtual std::vector<float*> Backward(const std::vector<PythonMemory>& top_gradients,
                                       const std::vector<bool>& propagate_down) = 0;
};

// Finds the class, makes a layer of it, and calls setup and reshape. Throws PythonError,
// also where there is no Python, no NumPy or no such class.
std::unique_ptr<PythonLayer> MakePythonLayer(const PythonLayerOptions& options);

// What the library has: as MakePythonLayer, by a name without C++'s ornaments.
using MakePythonLayerFunction = PythonLayer*(const PythonLayerOptions& options);
inline constexpr char kMakePythonLayerName[] = "poseidon_make_python_layer";
inline constexpr char kPythonLibrary[] = "libposeidon_python.so";

}  // namespace poseidon
