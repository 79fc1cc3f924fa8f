// How `poseidon plan` shows a plan.
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "caffe_adapter/net.h"
#include "cli/plan.h"
#include "cli/table.h"
#include "scheduler/planner.h"

namespace poseidon {
namespace {

// Floats that a node sends and receives in an iteration, for the whole net.
struct Totals {
  int64_t floats_ps = 0;       // if all layers went over parameter servers
  int64_t floats_planned = 0;  // each layer by its scheme
};

Totals Sum(const Plan& plan) {
  Totals totals;
  for (const LayerPlan& layer : plan.layers()) {
    totals.floats_ps += layer.floats_ps();
    totals.floats_planned += layer.scheme() == SFB ? layer.floats_sfb() : layer.floats_ps();
  }
  return totals;
}

Shape WeightShape(const LayerSpec& layer) {
  return {layer.blobs(0).shape().begin(), layer.blobs(0).shape().end()};
}

int64_t Parameters(const LayerPlan& layer) {
  int64_t floats = 0;
  for (const Chunk& chunk : layer.chunks()) floats += chunk.size();
  return floats;
}

std::string TwoDigits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

// " (37% less)", or nothing where there is no difference to speak of.
std::string Saving(const Totals& totals) {
  if (totals.floats_planned == totals.floats_ps || totals.floats_ps == 0) return "";
  const double ratio =
      static_cast<double>(totals.floats_planned) / static_cast<double>(totals.floats_ps);
  const long percent = std::lround(100 * std::abs(1 - ratio));
  return " (" + std::to_string(percent) + "% " + (ratio < 1 ? "less" : "more") + ")";
}

}  // namespace

std::string PlanTable(const PlannedModel& planned) {
  const auto& [model, plan] = planned;
  constexpr auto kRight = Table::Align::kRight;
  Table table({{"layer"},
               {"type"},
               {"weights"},
               {"scheme"},
               {"floats PS", kRight},
               {"floats SFB", kRight}});
  for (int i = 0; i < plan.layers_size(); ++i) {
    const LayerSpec& spec = model.layers(i);
    const LayerPlan& layer = plan.layers(i);
    table.AddRow({spec.name(), spec.type(), ToString(WeightShape(spec)),
                  Scheme_Name(layer.scheme()), Grouped(layer.floats_ps()),
                  spec.has_inner_product() ? Grouped(layer.floats_sfb()) : "-"});
  }
  const Totals totals = Sum(plan);
  return table.ToString() + "\n" + Grouped(ParameterCount(model)) +
         " parameters; workers: " + std::to_string(plan.workers()) +
         ", servers: " + std::to_string(plan.servers()) +
         ", samples a worker: " + std::to_string(model.batch()) +
         "\nfloats that a node sends and receives in an iteration: " + Grouped(totals.floats_ps) +
         " all over PS, " + Grouped(totals.floats_planned) + " as planned" + Saving(totals) +
         "\nthe fullest server holds " + TwoDigits(LoadImbalance(plan)) + " times the mean\n";
}

std::string PlanJson(const PlannedModel& planned) {
  const auto& [model, plan] = planned;
  const Totals totals = Sum(plan);
  nlohmann::ordered_json json;
  json["net"] = model.name();
  json["parameters"] = ParameterCount(model);
  json["workers"] = plan.workers();
  json["servers"] = plan.servers();
  json["batch"] = model.batch();
  json["layers"] = nlohmann::ordered_json::array();
  for (int i = 0; i < plan.layers_size(); ++i) {
    const LayerSpec& spec = model.layers(i);
    const LayerPlan& layer = plan.layers(i);
    nlohmann::ordered_json entry = {{"name", spec.name()},
                                    {"type", spec.type()},
                                    {"shape", WeightShape(spec)},
                                    {"parameters", Parameters(layer)},
                                    {"scheme", Scheme_Name(layer.scheme())},
                                    {"floats_ps", layer.floats_ps()},
                                    {"floats_sfb", nullptr},
                                    {"kv_pairs", layer.scheme() == PS ? layer.chunks_size() : 0}};
    if (spec.has_inner_product()) entry["floats_sfb"] = layer.floats_sfb();
    json["layers"].push_back(std::move(entry));
  }
  json["total"] = {{"floats_ps", totals.floats_ps}, {"floats_planned", totals.floats_planned}};
  json["server_load"] = {{"floats", ServerLoads(plan)}, {"max_over_mean", LoadImbalance(plan)}};
  return json.dump(2) + "\n";
}

}  // namespace poseidon
