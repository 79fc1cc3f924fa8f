// Engine: what computes a net's forward and backward, one step at a time.
//
// The training loop walks the steps forward, then backward, and between two steps it can wait for a
// layer's parameters or hand its gradient on: that is all that wait-free backpropagation needs.
//
// Parameters and gradients live in memory that the engine is given, on the device where it computes
// (worker/worker_net.h): a layer is its blobs one after the other, float32. On a GPU calls may
// return before what they ask for is done; it is in the device's default stream then, in the order
// of the calls, and what is returned is always there.
//
// One thread owns it; what it says of the net any may ask, as it never changes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "caffe_adapter/data/data_share.h"
#include "caffe_adapter/files/caffemodel.h"
#include "caffe_adapter/net/net.h"
#include "core/arithmetic/gradient_buffers.h"
#include "proto/model.pb.h"
#include "proto/wire.pb.h"

namespace poseidon {

// A result of a test net: a blob that no layer reads.
struct TestOutput {
  std::string blob;
  std::vector<float> values;
  int net = 0;  // of several test nets
};

// What a test phase found, averaged over its batches.
struct TestResult {
  std::optional<float> accuracy;    // of the first test net, if it has an Accuracy layer
  std::optional<float> loss;        // if it has a loss layer in the test phase
  std::vector<TestOutput> outputs;  // of all test nets
};

class Engine {
 public:
  virtual ~Engine() = default;

  // The layers with parameters; fixed from the start.
  virtual const ModelSpec& model() const = 0;
  // Samples of one pass, at present.
  virtual int64_t batch() const = 0;
  // What its train net reads, and the seed of what it draws, which must be the same on all workers;
  // nothing where it reads and draws nothing.
  virtual wire::TrainingInputs inputs() const { return {}; }

  // Steps are the net's layers in forward order, those without parameters too.
  virtual int steps() const = 0;
  virtual const std::string& step_name(int step) const = 0;
  // Index in model().layers() of the parameters that a step uses, if any.
  virtual std::optional<int> layer_of_step(int step) const = 0;

  // Makes `values` (all blobs' floats) the parameters of a layer. The memory must live until the
  // next call for the layer, or the engine's end.
  virtual void BindParameters(int layer, std::span<float> values) = 0;
  // Fills the bound parameters by the net's fillers; the same seed gives the same values.
  virtual void FillParameters() = 0;

  // The net that is trained, and all its layers' values, those too that the model lacks
  // (statistics, lr_mult 0). Null and nothing where the engine has no net.
  virtual const NetDescription* net() const { return nullptr; }
  virtual NetValues Values() const { return {}; }
  // Those of layers that the model lacks (lr_mult 0), but BatchNorm's statistics; the others' blobs
  // are empty.
  virtual NetValues UntrainedValues() const { return {}; }
  // Of all bound parameters and the engine's own; an empty blob's stay as they are.
  virtual void SetValues(const NetValues& /*values*/) {}
  // What training changes and the model lacks, in memory of the engine's own, which stays where it
  // is, on a device if the engine computes on one: the statistics of its BatchNorm layers, and what
  // a Python layer that learns nothing has in its blobs. Nothing where it has none.
  virtual std::vector<std::span<float>> Statistics() const { return {}; }
  // Layers that only test nets have take their values from a .caffemodel, if it has them; a
  // snapshot never has. Throws DataError.
  virtual void ReadTestLayers(const std::string& /*caffemodel*/) {}

  // The number of workers has changed, or the parts of the batch that they have: batches are read
  // as this share's from now on, and the loss of a part is weighted so that its mean over the
  // workers is the mean over all samples. Nothing where it reads no data. Memory that layers'
  // parameters were bound to stays bound.
  virtual void SetShare(const DataShare& /*share*/) {}
  // Reads the batch of an iteration (from 0). Throws DataError.
  virtual void LoadBatch(int64_t iteration) = 0;
  // In ascending order of steps after LoadBatch.
  virtual void Forward(int step) = 0;
  // In descending order of steps after Forward of all. For a step with parameters the gradient of
  // the engine's loss is written to `target`; else `target` is ignored.
  virtual void Backward(int step, const GradientBuffers& target) = 0;
  // The sum of the net's weighted losses in the forward pass just done.
  virtual float loss() const = 0;
  // What is wrong where numbers of the forward pass just done are no longer finite: the first
  // layer whose result or parameters are not, for people; empty if there is none.
  virtual std::string FirstNotFinite() const { return ""; }

  // When others put work in the device's stream during a pass: only before Forward and behind
  // Backward of these steps, and behind the last Forward; nullopt, as before any call: between any
  // two. What lies between may then be put there as one. Backward's targets are the same memory in
  // all passes from now on, until the next call.
  virtual void SetPauses(const std::optional<std::set<int>>& /*steps*/) {}
  // Gives the device's memory back that is kept for later, as others need some. Nothing where that
  // is the host.
  virtual void ReleaseMemory() {}

  // Runs the test phase with the current parameters. Empty result if the job has none; only worker
  // 0's engine need have one.
  virtual TestResult Test() = 0;

  // Returns when the device has done what Forward and Backward have put there, for whoever measures
  // times. Engines that compute before they return have nothing to do.
  virtual void Synchronize() {}
};

}  // namespace poseidon
