// The C interface's Session.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "client/c_api/c_call.h"
#include "poseidon/session.h"

struct poseidon_session : poseidon::CHandle<poseidon::Session> {
  using CHandle::CHandle;
  bool mean_gradient = true;  // what workers get; else new values
};

namespace poseidon {
namespace {

void CheckCount(int64_t count, const void* items, const std::string& what) {
  if (count >= 0 && (count == 0 || items != nullptr)) return;
  throw ConfigError("the model has " + std::to_string(count) + " " + what +
                    (items == nullptr ? " at a null pointer" : ""));
}

Layer ToLayer(const poseidon_layer& from) {
  Layer layer;
  layer.name = TextOf(from.name);
  layer.type = TextOf(from.type);
  layer.multiply_adds = from.multiply_adds;
  layer.forward_ms = from.forward_ms;
  layer.backward_ms = from.backward_ms;
  if (from.rows != 0) layer.inner_product = {from.outputs, from.inputs, from.rows};
  CheckCount(from.blob_count, from.blobs, "blobs in layer \"" + layer.name + "\"");
  for (int b = 0; b < from.blob_count; ++b) {
    const poseidon_blob& blob = from.blobs[b];
    CheckCount(blob.axes, blob.shape, "axes in a blob of layer \"" + layer.name + "\"");
    layer.blobs.push_back({.shape = {blob.shape, blob.shape + blob.axes},
                           .lr_mult = blob.lr_mult,
                           .decay_mult = blob.decay_mult,
                           .group = blob.group});
  }
  return layer;
}

OptimizerType ToOptimizerType(const std::string& name) {
  if (name.empty()) return OptimizerType::kMeanGradient;
  if (name == "TorchSGD") return OptimizerType::kPyTorchSgd;
  if (name == "TorchAdamW") return OptimizerType::kPyTorchAdamW;
  throw ConfigError("the model's optimizer is \"" + name +
                    "\"; it must be TorchSGD or TorchAdamW, or not given");
}

Model ToModel(const poseidon_model* from) {
  if (from == nullptr) throw ConfigError("the model is a null pointer");
  Model model;
  model.name = TextOf(from->name);
  model.optimizer.type = ToOptimizerType(TextOf(from->optimizer));
  model.batch = from->batch;
  model.iterations = from->iterations;
  CheckCount(from->layer_count, from->layers, "layers");
  for (int l = 0; l < from->layer_count; ++l) model.layers.push_back(ToLayer(from->layers[l]));
  return model;
}

// Blocks that the caller makes and frees; the heap's if it makes none.
std::function<std::shared_ptr<std::byte>(size_t)> AllocateBy(
    const poseidon_session_options& options) {
  if ((options.allocate == nullptr) != (options.release == nullptr)) {
    throw ConfigError("of allocate and release one is a null pointer and the other is not");
  }
  if (options.allocate == nullptr) return {};
  return [allocate = options.allocate, release = options.release,
          context = options.memory_context](size_t bytes) -> std::shared_ptr<std::byte> {
    void* const block = allocate(context, bytes);
    if (block == nullptr) return nullptr;
    return {static_cast<std::byte*>(block),
            [release, context](std::byte* memory) { release(context, memory); }};
  };
}

void Set(std::span<float> floats, float*& pointer, int64_t& size) {
  pointer = floats.empty() ? nullptr : floats.data();
  size = static_cast<int64_t>(floats.size());
}

}  // namespace
}  // namespace poseidon

using poseidon::CCall;
using poseidon::CCallWith;
using poseidon::CDestroy;
using poseidon::CGet;
using poseidon::Session;

int poseidon_session_create(const poseidon_session_options* options, poseidon_session** session) {
  return CCall([&] {
    if (options == nullptr || session == nullptr) {
      throw poseidon::Error(poseidon::ExitCode::kFailure, "the options or the result is null");
    }
    *session = nullptr;
    *session = new poseidon_session(poseidon::SessionOptions{
        .job = poseidon::TextOf(options->job),
        .job_text = poseidon::TextOf(options->job_text),
        .rank = options->rank,
        .host = poseidon::TextOf(options->host),
        .trace_directory = poseidon::TextOf(options->trace_directory),
        .interrupted = poseidon::InterruptedBy(options->interrupted, options->context),
        .goes_back = options->goes_back != 0,
        .incarnation = options->incarnation,
        .replaces = options->replaces,
        .allocate = poseidon::AllocateBy(*options)});
  });
}

void poseidon_session_destroy(poseidon_session* session) { CDestroy(session); }

int poseidon_session_rank(const poseidon_session* session) {
  return CGet(session, -1, [](const Session& object) { return object.rank(); });
}

int poseidon_session_workers(const poseidon_session* session) {
  return CGet(session, -1, [](const Session& object) { return object.workers(); });
}

int64_t poseidon_session_iteration(const poseidon_session* session) {
  return CGet(session, int64_t{-1}, [](const Session& object) { return object.iteration(); });
}

int poseidon_session_local_steps(const poseidon_session* session) {
  return CGet(session, -1, [](const Session& object) { return object.local_steps(); });
}

int poseidon_session_fragments(const poseidon_session* session) {
  return CGet(session, -1, [](const Session& object) { return object.fragments(); });
}

int poseidon_session_overlap_steps(const poseidon_session* session) {
  return CGet(session, -1, [](const Session& object) { return object.overlap_steps(); });
}

int poseidon_session_recovers(const poseidon_session* session) {
  return CGet(session, false, [](const Session& object) { return object.recovers(); }) ? 1 : 0;
}

int poseidon_session_declare(poseidon_session* session, const poseidon_model* model,
                             int64_t first_iteration) {
  return CCallWith(session, [&](Session& object) {
    const poseidon::Model declared = poseidon::ToModel(model);
    session->mean_gradient = declared.optimizer.type == poseidon::OptimizerType::kMeanGradient;
    object.Declare(declared, first_iteration);
  });
}

int poseidon_session_begin(poseidon_session* session) {
  return CCallWith(session, [](Session& object) { object.Begin(); });
}

int poseidon_session_memory(poseidon_session* session, int layer, poseidon_layer_memory* memory) {
  return CCallWith(session, [&](Session& object) {
    if (memory == nullptr) throw poseidon::Error(poseidon::ExitCode::kFailure, "memory is null");
    *memory = {};
    poseidon::Set(object.values(layer), memory->values, memory->values_size);
    const Session::Gradient gradient = object.gradient(layer);
    poseidon::Set(gradient.dense, memory->gradient, memory->gradient_size);
    poseidon::Set(gradient.u, memory->u, memory->u_size);
    poseidon::Set(gradient.v, memory->v, memory->v_size);
    if (!session->mean_gradient) return;
    poseidon::Set(object.mean_gradient(layer), memory->mean_gradient, memory->mean_gradient_size);
  });
}

int poseidon_session_gradient_ready(poseidon_session* session, int layer) {
  return CCallWith(session, [&](Session& object) { object.GradientReady(layer); });
}

int poseidon_session_wait_fresh(poseidon_session* session, int layer) {
  return CCallWith(session, [&](Session& object) { object.WaitFresh(layer); });
}

int poseidon_session_layers_sent_with(poseidon_session* session, int layer, int* first,
                                      int* count) {
  return CCallWith(session, [&](Session& object) {
    if (first == nullptr || count == nullptr) {
      throw poseidon::Error(poseidon::ExitCode::kFailure, "first or count is null");
    }
    const std::vector<int> layers = object.layers_sent_with(layer);
    *first = layers.front();
    *count = static_cast<int>(layers.size());
  });
}

int poseidon_session_set_groups(poseidon_session* session, const poseidon_parameter_group* groups,
                                int count) {
  return CCallWith(session, [&](Session& object) {
    poseidon::CheckCount(count, groups, "parameter groups");
    std::vector<poseidon::ParameterGroup> copies;
    for (int g = 0; g < count; ++g) {
      const poseidon_parameter_group& group = groups[g];
      copies.push_back({.learning_rate = group.learning_rate,
                        .weight_decay = group.weight_decay,
                        .momentum = group.momentum,
                        .momentum2 = group.momentum2,
                        .dampening = group.dampening,
                        .delta = group.delta,
                        .nesterov = group.nesterov != 0,
                        .maximize = group.maximize != 0});
    }
    object.SetGroups(std::move(copies));
  });
}

int poseidon_session_restore_optimizer_state(poseidon_session* session, const float* state,
                                             int64_t count) {
  return CCallWith(session, [&](Session& object) {
    poseidon::CheckCount(count, state, "floats of optimizer state");
    object.RestoreOptimizerState({state, state + count});
  });
}

int poseidon_session_collect_optimizer_state(poseidon_session* session, float* state,
                                             int64_t count) {
  return CCallWith(session, [&](Session& object) {
    poseidon::CheckCount(count, state, "floats of optimizer state");
    const std::vector<float> collected = object.CollectOptimizerState();
    if (static_cast<int64_t>(collected.size()) != count) {
      throw poseidon::Error(poseidon::ExitCode::kFailure,
                            "the optimizer state has " + std::to_string(collected.size()) +
                                " floats, there is room for " + std::to_string(count));
    }
    std::ranges::copy(collected, state);
  });
}

int poseidon_session_end_iteration(poseidon_session* session, float loss, int* plan_changed) {
  return CCallWith(session, [&](Session& object) {
    poseidon::IterationResult result;
    if (!std::isnan(loss)) result.loss = loss;
    const bool changed = object.EndIteration(result);
    if (plan_changed != nullptr) *plan_changed = changed ? 1 : 0;
  });
}

int poseidon_session_wants_layer_times(const poseidon_session* session) {
  return CGet(session, false, [](const Session& object) { return object.WantsLayerTimes(); }) ? 1
                                                                                              : 0;
}

int poseidon_session_report_layer_times(poseidon_session* session, const double* forward_ms,
                                        const double* backward_ms, int layer_count) {
  return CCallWith(session, [&](Session& object) {
    poseidon::CheckCount(layer_count, forward_ms, "forward times");
    poseidon::CheckCount(layer_count, backward_ms, "backward times");
    const auto count = static_cast<size_t>(layer_count);
    object.ReportLayerTimes({forward_ms, count}, {backward_ms, count});
  });
}

int poseidon_session_finish(poseidon_session* session) {
  return CCallWith(session, [](Session& object) { object.Finish(); });
}

int poseidon_session_go_back(poseidon_session* session) {
  return CCallWith(session, [](Session& object) { object.GoBack(); });
}

int poseidon_session_sends_statistics(const poseidon_session* session) {
  return CGet(session, false, [](const Session& object) { return object.SendsStatistics(); }) ? 1
                                                                                              : 0;
}

int poseidon_session_awaits_statistics(const poseidon_session* session) {
  return CGet(session, false, [](const Session& object) { return object.AwaitsStatistics(); }) ? 1
                                                                                               : 0;
}

int poseidon_session_send_statistics(poseidon_session* session, const float* statistics,
                                     int64_t count) {
  return CCallWith(session, [&](Session& object) {
    poseidon::CheckCount(count, statistics, "floats of statistics");
    object.SendStatistics({statistics, static_cast<size_t>(count)});
  });
}

int poseidon_session_await_statistics(poseidon_session* session, float* statistics, int64_t count) {
  return CCallWith(session, [&](Session& object) {
    poseidon::CheckCount(count, statistics, "floats of statistics");
    std::ranges::copy(object.AwaitStatistics(static_cast<size_t>(count)), statistics);
  });
}

int poseidon_session_fail(poseidon_session* session, const char* reason) {
  return CCallWith(session, [&](Session& object) { object.Fail(poseidon::TextOf(reason)); });
}
