// Shapes of recurrent layers.
#include "caffe_adapter/net/layer_types.h"
#include "caffe_adapter/net/recurrence.h"

namespace poseidon {
namespace {

void CheckNumbers(const LayerInput& input, const Recurrence& recurrence) {
  const int states = recurrence.expose_hidden ? recurrence.states : 0;
  if (input.layer.bottom_size() > 3 + states || input.layer.bottom_size() < 2 + states) {
    input.Fail("", "has " + std::to_string(input.layer.bottom_size()) + " bottoms; expected " +
                       std::to_string(2 + states) + " or " + std::to_string(3 + states) +
                       ": x, the sequence indicators, maybe a static input" +
                       (states > 0 ? ", the exposed states" : ""));
  }
  if (input.layer.top_size() != 1 + states) {
    input.Fail("", "has " + std::to_string(input.layer.top_size()) + " tops; expected " +
                       std::to_string(1 + states));
  }
}

void CheckBottom(const LayerInput& input, int index, const Shape& expected,
                 const std::string& what) {
  if (input.bottoms[index] == expected) return;
  input.Fail("bottom." + std::to_string(index),
             input.Bottom(index) + ", should be " + what + ": " + ToString(expected));
}

Recurrence CheckRecurrence(const LayerInput& input) {
  const Shape& x = input.bottoms[0];
  if (x.size() < 3) {
    input.Fail("bottom.0", input.Bottom(0) + ", should be time steps x streams x inputs");
  }
  const Recurrence recurrence = ToRecurrence(input.layer, x);
  if (recurrence.outputs == 0) {
    input.Fail("recurrent_param.num_output", "num_output must be at least 1");
  }
  CheckNumbers(input, recurrence);
  CheckBottom(input, 1, {recurrence.steps, recurrence.streams}, "the sequence indicators");
  if (recurrence.static_input) {
    const Shape& fixed = input.bottoms[2];
    if (fixed.size() < 2 || fixed[0] != recurrence.streams) {
      input.Fail("bottom.2", input.Bottom(2) + ", should be streams x static inputs, with " +
                                 std::to_string(recurrence.streams) + " streams");
    }
  }
  for (int i = recurrence.first_state(); i < input.layer.bottom_size(); ++i) {
    CheckBottom(input, i, recurrence.state_shape(), "a state before the first step");
  }
  return recurrence;
}

int64_t Inputs(const Shape& bottom, int axis) {
  return Count(bottom, axis, static_cast<int>(bottom.size()));
}

// What both types have: the tops, and the parameters up to the recurrent weights.
LayerShapes InferRecurrent(const LayerInput& input, const Recurrence& recurrence) {
  const caffe::RecurrentParameter& p = input.layer.recurrent_param();
  const int64_t rows = recurrence.gates * recurrence.outputs;
  LayerShapes shapes{{{recurrence.steps, recurrence.streams, recurrence.outputs}}, {}};
  shapes.tops.resize(input.layer.top_size(), recurrence.state_shape());
  shapes.parameters.push_back({{rows, Inputs(input.bottoms[0], 2)}, p.weight_filler()});
  shapes.parameters.push_back({{rows}, p.bias_filler()});
  if (recurrence.static_input) {
    shapes.parameters.push_back({{rows, Inputs(input.bottoms[2], 1)}, p.weight_filler()});
  }
  shapes.parameters.push_back({{rows, recurrence.outputs}, p.weight_filler()});
  return shapes;
}

}  // namespace

Recurrence ToRecurrence(const caffe::LayerParameter& layer, const Shape& x) {
  const bool lstm = layer.type() == "LSTM";
  Recurrence recurrence{.steps = x[0],
                        .streams = x[1],
                        .outputs = layer.recurrent_param().num_output(),
                        .gates = lstm ? 4 : 1,
                        .states = lstm ? 2 : 1,
                        .expose_hidden = layer.recurrent_param().expose_hidden()};
  const int exposed = recurrence.expose_hidden ? recurrence.states : 0;
  recurrence.static_input = layer.bottom_size() > 2 + exposed;
  return recurrence;
}

LayerShapes InferLstm(const LayerInput& input) {
  return InferRecurrent(input, CheckRecurrence(input));
}

LayerShapes InferRnn(const LayerInput& input) {
  const caffe::RecurrentParameter& p = input.layer.recurrent_param();
  const Recurrence recurrence = CheckRecurrence(input);
  LayerShapes shapes = InferRecurrent(input, recurrence);
  shapes.parameters.push_back({{recurrence.outputs, recurrence.outputs}, p.weight_filler()});
  shapes.parameters.push_back({{recurrence.outputs}, p.bias_filler()});
  return shapes;
}

// One step of an LSTM: from the cell state, the gate inputs and the sequence indicators to the next
// cell state and hidden state.
LayerShapes InferLstmUnit(const LayerInput& input) {
  const Shape& cell = input.bottoms[0];
  if (cell.size() != 3 || cell[0] != 1) {
    input.Fail("bottom.0", input.Bottom(0) + ", should be the cell state: 1 x streams x outputs");
  }
  CheckBottom(input, 1, {1, cell[1], 4 * cell[2]}, "the gate inputs");
  CheckBottom(input, 2, {1, cell[1]}, "the sequence indicators");
  return {{cell, cell}, {}};
}

}  // namespace poseidon
