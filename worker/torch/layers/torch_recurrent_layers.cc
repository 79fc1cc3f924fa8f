// Recurrent layers, unrolled over the time steps of a batch.
#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <deque>
#include <memory>
#include <utility>

#include "caffe_adapter/data/data_share.h"
#include "caffe_adapter/net/recurrence.h"
#include "worker/torch/layers/torch_layer.h"

namespace poseidon {
namespace {

// Hidden state, and of an LSTM the cell state; each streams x outputs.
using States = Tensors;

// What one batch leaves to the next: a sequence that is longer than a batch goes on with the states
// that the batch before ended with, as in Caffe. No gradient goes back over that border.
class CarriedStates {
 public:
  // `passes`: of an iteration, at most. A worker of a job that recovers goes back to the begin of
  // its iteration or of the one before, so what the passes of two iterations start with is kept.
  explicit CarriedStates(int64_t passes) : most_(2 * static_cast<size_t>(passes)) {}

  // The states that a pass starts with: those that it started with before, if it is one of the last
  // that is computed again; else zero, unless it comes right after the last one.
  const States& Start(const Pass& pass, const Recurrence& recurrence, const at::Tensor& like) {
    while (!starts_.empty() && starts_.back().pass > pass.iteration) starts_.pop_back();
    if (!starts_.empty() && starts_.back().pass == pass.iteration) return starts_.back().states;
    if (starts_.empty() || starts_.back().pass + 1 != pass.iteration || end_.empty()) {
      const Shape shape = {recurrence.streams, recurrence.outputs};
      end_.assign(recurrence.states, at::zeros(shape, like.options().requires_grad(false)));
      starts_.clear();
    }
    starts_.push_back({pass.iteration, std::exchange(end_, {})});
    if (starts_.size() > most_) starts_.pop_front();
    return starts_.back().states;
  }

  void End(const States& states) {
    end_.clear();
    for (const at::Tensor& state : states) end_.push_back(state.detach());
  }

  // The next pass starts with zero.
  void Forget() {
    starts_.clear();
    end_.clear();
  }

 private:
  struct PassStart {
    int64_t pass;
    States states;
  };

  size_t most_;
  std::deque<PassStart> starts_;  // by pass, without gaps
  States end_;                    // of the last of them, if it has been computed
};

struct LstmStep {
  at::Tensor cell;
  at::Tensor hidden;
};

// From gate inputs, streams x 4 outputs. `goes_on` is streams x 1: 0 forgets the cell state.
LstmStep ComputeLstmStep(const at::Tensor& cell, const at::Tensor& gate_inputs,
                         const at::Tensor& goes_on) {
  const int64_t outputs = cell.size(-1);
  const Tensors gates = gate_inputs.narrow(-1, 0, 3 * outputs).sigmoid().chunk(3, -1);
  const at::Tensor cell_input = gate_inputs.narrow(-1, 3 * outputs, outputs).tanh();
  const at::Tensor next = gates[1].mul(goes_on).mul(cell).addcmul(gates[0], cell_input);
  return {next, gates[2].mul(next.tanh())};
}

// The step of a type: from the states before it and its gate inputs to the states after it.
using Step =
    std::function<States(const States& states, const at::Tensor& gates, const at::Tensor& goes_on)>;

States LstmStates(const States& states, const at::Tensor& gates, const at::Tensor& goes_on) {
  LstmStep step = ComputeLstmStep(states[1], gates, goes_on);
  return {std::move(step.hidden), std::move(step.cell)};
}

States RnnStates(const States&, const at::Tensor& gates, const at::Tensor&) {
  return {gates.tanh()};
}

struct Unrolled {
  at::Tensor hidden;  // steps x streams x outputs
  States last;
};

// The share of the inputs in the gate inputs of all steps in one product: steps x streams x rows.
at::Tensor InputShare(const Recurrence& recurrence, const Tensors& bottoms,
                      const Tensors& parameters) {
  const at::Tensor x = bottoms[0].reshape({recurrence.steps * recurrence.streams, -1});
  at::Tensor share = at::addmm(parameters[1], x, parameters[0].t())
                         .view({recurrence.steps, recurrence.streams, -1});
  if (!recurrence.static_input) return share;
  return share.add(at::mm(bottoms[2].reshape({recurrence.streams, -1}), parameters[2].t()));
}

Unrolled Unroll(const Recurrence& recurrence, const Step& step, States states,
                const Tensors& bottoms, const Tensors& parameters) {
  const Tensors inputs = InputShare(recurrence, bottoms, parameters).unbind();
  const Tensors goes_on = bottoms[1].unsqueeze(2).unbind();
  const at::Tensor weights = parameters[recurrence.static_input ? 3 : 2].t();
  Tensors hidden;
  for (size_t t = 0; t < inputs.size(); ++t) {
    const at::Tensor gates = at::addmm(inputs[t], states[0].mul(goes_on[t]), weights);
    states = step(states, gates, goes_on[t]);
    hidden.push_back(states[0]);
  }
  return {at::stack(hidden), std::move(states)};
}

// No gradient goes to or comes from exposed states, as in Caffe.
States ExposedStart(const Recurrence& recurrence, const Tensors& bottoms) {
  States states;
  for (int i = 0; i < recurrence.states; ++i) {
    const at::Tensor& state = bottoms[recurrence.first_state() + i];
    states.push_back(state.detach().reshape({recurrence.streams, recurrence.outputs}));
  }
  return states;
}

// A layer whose states are of the streams that a worker has by its place among so many workers.
class CarryingLayer : public TorchLayer {
 public:
  CarryingLayer(std::unique_ptr<TorchLayer> layer, std::shared_ptr<CarriedStates> carried,
                int64_t place, int64_t workers)
      : layer_(std::move(layer)), carried_(std::move(carried)), place_(place), workers_(workers) {}

  Tensors Forward(const Pass& pass, const Tensors& bottoms, const Tensors& parameters) override {
    return layer_->Forward(pass, bottoms, parameters);
  }

  Tensors Backward(const Tensors& top_gradients, const ParameterGradients& gradients) override {
    return layer_->Backward(top_gradients, gradients);
  }

  void SetShare(const DataShare& share) override {
    const int64_t workers = share.tenures.back().workers;
    if (share.place == place_ && workers == workers_) return;
    place_ = share.place;
    workers_ = workers;
    carried_->Forget();
  }

 private:
  std::unique_ptr<TorchLayer> layer_;
  std::shared_ptr<CarriedStates> carried_;
  int64_t place_;
  int64_t workers_;
};

// `output` makes the first top from the hidden states of all steps.
using Output = std::function<at::Tensor(const at::Tensor& hidden, const Tensors& parameters)>;

std::unique_ptr<TorchLayer> MakeRecurrent(const TorchLayerInput& input, const Step& step,
                                          const Output& output) {
  input.CheckNoGradient(1, "sequence indicators");
  const Recurrence recurrence =
      ToRecurrence(input.description.parameter, input.description.bottoms[0].shape);
  const auto carried = std::make_shared<CarriedStates>(input.passes);
  auto layer = MakeAutogradLayer(
      input, [=](const Pass& pass, const Tensors& bottoms, const Tensors& parameters) -> Tensors {
        const Unrolled unrolled =
            Unroll(recurrence, step,
                   recurrence.expose_hidden ? ExposedStart(recurrence, bottoms)
                                            : carried->Start(pass, recurrence, bottoms[0]),
                   bottoms, parameters);
        Tensors tops = {output(unrolled.hidden, parameters)};
        if (!recurrence.expose_hidden) {
          carried->End(unrolled.last);
          return tops;
        }
        for (const at::Tensor& state : unrolled.last) {
          tops.push_back(state.detach().view(recurrence.state_shape()));
        }
        return tops;
      });
  return std::make_unique<CarryingLayer>(std::move(layer), carried, input.rank, input.workers);
}

}  // namespace

std::unique_ptr<TorchLayer> MakeLstm(const TorchLayerInput& input) {
  return MakeRecurrent(input, LstmStates,
                       [](const at::Tensor& hidden, const Tensors&) { return hidden; });
}

// The outputs of all steps in one product; none depends on another.
std::unique_ptr<TorchLayer> MakeRnn(const TorchLayerInput& input) {
  return MakeRecurrent(input, RnnStates, [](const at::Tensor& hidden, const Tensors& parameters) {
    const at::Tensor& weights = parameters[parameters.size() - 2];
    return at::addmm(parameters.back(), hidden.flatten(0, 1), weights.t())
        .tanh()
        .view(hidden.sizes());
  });
}

std::unique_ptr<TorchLayer> MakeLstmUnit(const TorchLayerInput& input) {
  input.CheckNoGradient(2, "sequence indicators");
  return MakeAutogradLayer(
      input, [](const Pass&, const Tensors& bottoms, const Tensors&) -> Tensors {
        LstmStep step = ComputeLstmStep(bottoms[0], bottoms[1], bottoms[2].unsqueeze(2));
        return {std::move(step.cell), std::move(step.hidden)};
      });
}

}  // namespace poseidon
