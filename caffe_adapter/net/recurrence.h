// What an LSTM or RNN layer says of the recurrence that it computes.
#pragma once

#include <cstdint>
#include <vector>

#include "caffe_adapter/net/shape.h"
#include "proto/caffe.pb.h"

namespace poseidon {

// Caffe's bottoms, in this order: x, steps x streams x ...; the sequence indicators, steps x
// streams, 0 where a stream begins a sequence and 1 where it goes on; maybe a static input,
// streams x ..., which every step sees; and with expose_hidden each state before the first step,
// 1 x streams x outputs. Its tops: steps x streams x outputs; and with expose_hidden each state
// after the last step.
//
// Its parameters, in the order of a .caffemodel (H: outputs, D: inputs, S: static inputs):
//   LSTM: W_xc 4H x D, b_c 4H, W_xc_static 4H x S if there is a static input, W_hc 4H x H;
//         of the 4H, the input gates come first, then forget gates, output gates, cell inputs
//   RNN:  W_xh H x D, b_h H, W_xh_static H x S if there is a static input, W_hh H x H, W_ho H x H,
//         b_o H
struct Recurrence {
  int64_t steps = 0;
  int64_t streams = 0;
  int64_t outputs = 0;
  int gates = 1;   // values of the gate inputs for each output: 4 of an LSTM
  int states = 1;  // LSTM: hidden and cell state; RNN: hidden state
  bool expose_hidden = false;
  bool static_input = false;

  // Of the bottoms, that of the first exposed state.
  int first_state() const { return static_input ? 3 : 2; }
  Shape state_shape() const { return {1, streams, outputs}; }
};

// Of a layer of type LSTM or RNN, whose bottoms have at least the axes given above.
Recurrence ToRecurrence(const caffe::LayerParameter& layer, const Shape& x);

}  // namespace poseidon
