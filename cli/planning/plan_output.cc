// How `poseidon plan` shows a plan.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "caffe_adapter/net/net.h"
#include "cli/output/table.h"
#include "cli/planning/plan.h"
#include "core/text/listed.h"
#include "core/time.h"
#include "planner/cost/cost_model.h"
#include "planner/grid_choice.h"
#include "planner/lane_choice.h"
#include "planner/placement.h"
#include "proto/bucket.h"
#include "proto/model_size.h"

namespace poseidon {
namespace {

constexpr auto kRight = Table::Align::kRight;

// The paper's floats of one layer, and the bucket that it is in.
struct LayerRow {
  const LayerSpec& spec;
  const BucketPlan& bucket;
  int64_t floats_ps = 0;
  int64_t floats_sfb = 0;
};

std::vector<LayerRow> LayerRows(const PlannedModel& planned) {
  const ModelSpec& model = planned.model;
  const Plan& plan = planned.plan;
  const std::vector<int> bucket_of = BucketOfLayer(plan);
  std::vector<LayerRow> rows;
  for (int i = 0; i < model.layers_size(); ++i) {
    const LayerSpec& spec = model.layers(i);
    LayerRow row{spec, plan.buckets(bucket_of[i])};
    row.floats_ps =
        FloatsParameterServer(FloatCount(spec), plan.workers(), plan.servers(), planned.colocated);
    if (spec.has_inner_product()) {
      const InnerProductSpec& product = spec.inner_product();
      row.floats_sfb = FloatsFactorBroadcast(product.outputs(), product.inputs(), product.rows(),
                                             plan.workers());
    }
    rows.push_back(row);
  }
  return rows;
}

// Floats that a node sends and receives in an iteration, for the whole net: where servers have
// machines of their own, of each layer by the busier of a worker and a server.
struct Totals {
  int64_t floats_ps = 0;       // if all layers went over parameter servers
  int64_t floats_planned = 0;  // as each layer's scheme moves them
};

// ADAM's gradients travel as factors, its values as they are. Where servers have machines of their
// own a server may be sent the factors of several workers, as it then is in floats_ps.
int64_t PlannedAdam(const LayerRow& row, const PlannedModel& planned) {
  const int64_t workers = planned.plan.workers();
  const int64_t servers = planned.plan.servers();
  int64_t factors = row.floats_sfb / std::max<int64_t>(workers - 1, 1);
  // They fit in a message, so these products fit in an int64.
  if (!planned.colocated) factors = factors * std::max(workers, servers) / servers;
  return (row.floats_ps + factors) / 2;
}

// Of a layer by its bucket's scheme.
int64_t Planned(const LayerRow& row, const PlannedModel& planned) {
  const Scheme scheme = row.bucket.scheme();
  const int64_t workers = planned.plan.workers();
  if (scheme == SFB) return row.floats_sfb;
  if (scheme == ADAM) return PlannedAdam(row, planned);
  if (scheme == PS) return row.floats_ps;
  // Each worker sends and receives all but its own share, twice.
  return 4 * FloatCount(row.spec) * (workers - 1) / workers;
}

Totals Sum(const std::vector<LayerRow>& rows, const PlannedModel& planned) {
  Totals totals;
  for (const LayerRow& row : rows) {
    totals.floats_ps += row.floats_ps;
    totals.floats_planned += Planned(row, planned);
  }
  return totals;
}

Shape WeightShape(const LayerSpec& layer) {
  return {layer.blobs(0).shape().begin(), layer.blobs(0).shape().end()};
}

// " (37% less)", or nothing where there is no difference to speak of.
std::string Saving(const Totals& totals) {
  if (totals.floats_planned == totals.floats_ps || totals.floats_ps == 0) return "";
  const double ratio =
      static_cast<double>(totals.floats_planned) / static_cast<double>(totals.floats_ps);
  const long percent = std::lround(100 * std::abs(1 - ratio));
  return " (" + std::to_string(percent) + "% " + (ratio < 1 ? "less" : "more") + ")";
}

std::string SchemeText(const BucketPlan& bucket) {
  return SchemeName(bucket.scheme()) + (bucket.factor_ring() ? " (ring)" : "");
}

std::string LayerTable(const std::vector<LayerRow>& rows) {
  Table table({{"layer"},
               {"type"},
               {"weights"},
               {"scheme"},
               {"floats PS", kRight},
               {"floats SFB", kRight}});
  for (const LayerRow& row : rows) {
    table.AddRow({row.spec.name(), row.spec.type(), ToString(WeightShape(row.spec)),
                  SchemeText(row.bucket), Grouped(row.floats_ps),
                  row.spec.has_inner_product() ? Grouped(row.floats_sfb) : "-"});
  }
  return table.ToString();
}

// Milliseconds of the iteration, from the start of its forward pass.
std::string BucketTable(const Plan& plan) {
  constexpr double kBytesPerMegabyte = 1e6;
  Table table({{"bucket"},
               {"layers", kRight},
               {"scheme"},
               {"codec"},
               {"MB sent", kRight},
               {"MB received", kRight},
               {"ms", kRight},
               {"ready", kRight},
               {"sent", kRight},
               {"fresh", kRight},
               {"needed", kRight},
               {"runner-up"},
               {"margin ms", kRight}});
  for (const BucketPlan& bucket : plan.buckets()) {
    const BucketPrediction& prediction = bucket.prediction();
    const bool alone = prediction.runner_up() == SCHEME_UNSPECIFIED;
    table.AddRow({bucket.name(), std::to_string(bucket.layer_count()), SchemeText(bucket),
                  CodecName(bucket.codec()),
                  Digits(static_cast<double>(prediction.bytes_sent()) / kBytesPerMegabyte, 3),
                  Digits(static_cast<double>(prediction.bytes_received()) / kBytesPerMegabyte, 3),
                  Digits(prediction.exchange_ms(), 2), Digits(prediction.ready_ms(), 1),
                  Digits(prediction.sent_ms(), 1), Digits(prediction.fresh_ms(), 1),
                  Digits(prediction.needed_ms(), 1),
                  alone ? "-" : SchemeName(prediction.runner_up()),
                  alone ? "-" : Digits(prediction.runner_up_ms() - prediction.exchange_ms(), 2)});
  }
  return table.ToString();
}

// " (4.6% for communication)"; nothing where nothing is computed.
std::string CommunicationText(const Plan& plan) {
  constexpr double kMost = 100;  // times the computing, beyond which a percentage tells nobody much
  if (plan.compute_ms() <= 0) return "";
  const double times = ExpectedIterationMs(plan) / plan.compute_ms() - 1;
  if (times > kMost) return " (nearly all is communication)";
  return " (" + Digits(100 * times, 1) + "% for communication)";
}

std::string Iteration(const PlannedModel& planned) {
  const Plan& plan = planned.plan;
  const Limits& limits = planned.limits;
  std::string text = limits.seconds_estimated ? "estimated" : "predicted";
  text += " iteration: " + Digits(plan.iteration_ms(), 2) + " ms; ";
  if (plan.simulated_ms() > 0) {
    text += "tried in virtual time: " + Digits(plan.simulated_ms(), 2) + " ms; ";
  }
  text +=
      planned.slowest_factor == 1 ? "computing alone: " : "computing alone, the slowest worker: ";
  text += Digits(plan.compute_ms(), 2) + " ms" + CommunicationText(plan);
  if (plan.local_steps() > 1) {
    text += "; of " + std::to_string(plan.local_steps()) + " local steps, " +
            Digits(plan.iteration_ms() / plan.local_steps(), 2) + " ms each";
  }
  if (plan.fifo()) text += "; first come, first served";
  return text + "\n";
}

// How evenly the KV pairs lie on the servers.
std::string ServerLoad(const Plan& plan) {
  for (const BucketPlan& bucket : plan.buckets()) {
    if (!UsesServers(bucket.scheme())) continue;
    return "the fullest server holds " + Digits(LoadImbalance(plan), 2) + " times the mean";
  }
  return "no bucket uses a server";
}

std::string TorusLine(const Plan& plan) {
  return plan.grid_size() == 0 ? "" : "the torus is " + GridText(plan) + "\n";
}

nlohmann::ordered_json GridJson(const Plan& plan) {
  nlohmann::ordered_json grid = nlohmann::ordered_json::array();
  for (const GridDimension& dimension : plan.grid()) {
    grid.push_back({{"size", dimension.size()}, {"algorithm", SchemeName(dimension.algorithm())}});
  }
  return grid;
}

std::string Searches(int count) {
  return std::to_string(count) + (count == 1 ? " search" : " searches");
}

nlohmann::ordered_json SearchJson(const SearchReport& search) {
  if (search.searches == 0) return nullptr;
  return {{"searches", search.searches},
          {"predicted", search.predicted},
          {"tried", search.tried},
          {"too_large", search.too_large},
          {"more_to_try", search.more_to_try},
          {"hidden", search.hidden},
          {"complete", search.complete},
          {"limited", search.limited},
          {"needless", search.needless},
          {"limited_stages", search.limited_stages}};
}

nlohmann::ordered_json BucketJson(const ModelSpec& model, const BucketPlan& bucket) {
  const BucketPrediction& prediction = bucket.prediction();
  std::vector<std::string> layers;
  for (int i = 0; i < bucket.layer_count(); ++i) {
    layers.push_back(model.layers(bucket.first_layer() + i).name());
  }
  nlohmann::ordered_json json = {{"name", bucket.name()},
                                 {"layers", layers},
                                 {"scheme", SchemeName(bucket.scheme())},
                                 {"factor_ring", bucket.factor_ring()},
                                 {"codec", CodecName(bucket.codec())},
                                 {"parameters", FloatCount(bucket)},
                                 {"chunks", bucket.chunks_size()},
                                 {"bytes_sent", prediction.bytes_sent()},
                                 {"bytes_received", prediction.bytes_received()},
                                 {"predicted_ms", prediction.exchange_ms()},
                                 {"ready_ms", prediction.ready_ms()},
                                 {"sent_ms", prediction.sent_ms()},
                                 {"fresh_ms", prediction.fresh_ms()},
                                 {"needed_ms", prediction.needed_ms()},
                                 {"runner_up", nullptr}};
  if (prediction.runner_up() != SCHEME_UNSPECIFIED) {
    json["runner_up"] = {{"scheme", SchemeName(prediction.runner_up())},
                         {"predicted_ms", prediction.runner_up_ms()}};
  }
  return json;
}

}  // namespace

nlohmann::ordered_json LanesJson(const Plan& plan, int steps) {
  nlohmann::ordered_json others = nlohmann::ordered_json::array();
  for (const OtherLanes& other : plan.other_lanes()) {
    others.push_back({{"lanes", other.lanes()}, {"iteration_ms", other.iteration_ms() / steps}});
  }
  return {{"lanes", plan.lanes()}, {"planned", plan.planned_lanes()}, {"others", others}};
}

std::string SearchText(const SearchReport& search) {
  if (search.searches == 0) return "";
  std::string text = "searched: " + Grouped(search.predicted) + " plans predicted in " +
                     Searches(search.searches) + ", " + std::to_string(search.tried) +
                     " tried in virtual time";
  if (search.too_large > 0) text += ", " + std::to_string(search.too_large) + " too large for that";
  if (search.more_to_try) text += ", and no more may be tried";
  const char* separator = "; ";
  const auto add = [&](int count, const std::string& why) {
    if (count == 0) return;
    text += separator + Searches(count) + " ended " + why;
    separator = ", ";
  };
  add(search.hidden, "as the exchange was hidden");
  add(search.complete, "as nothing better was left");
  add(search.limited,
      "with the most that one may predict, before the end of: " + Listed(search.limited_stages));
  add(search.needless, "as another had hidden the exchange");
  return text + "\n";
}

std::string LimitsText(const Limits& limits) {
  // Against the prediction: beside what was simulated, with chance, a time could seem shorter.
  const auto percent = [](double share) { return Digits(100 * share, 1) + "%"; };
  std::string text =
      "what limits: " + limits.by + (limits.at_best ? "; at best" : "; if that took no time,") +
      " an iteration would take " + Digits(kMillisecondsPerSecond * limits.without, 2) + " ms\n";
  for (const Improvement& setback : limits.setbacks) {
    text += setback.what + " would make it " + percent(setback.seconds / limits.seconds - 1) +
            " longer: messages would meet that do not now\n";
  }
  if (limits.improvements.empty()) return text;
  // Of large plans nobody waits for so many predictions.
  Table table({{"under this plan"},
               {limits.estimated ? "estimated ms" : "predicted ms", kRight},
               {"less", kRight}});
  for (const Improvement& improvement : limits.improvements) {
    table.AddRow({improvement.what, Digits(kMillisecondsPerSecond * improvement.seconds, 2),
                  percent(1 - improvement.seconds / limits.seconds)});
  }
  return text + table.ToString();
}

nlohmann::ordered_json LimitsJson(const Limits& limits) {
  const auto list = [](const std::vector<Improvement>& improvements) {
    nlohmann::ordered_json changes = nlohmann::ordered_json::array();
    for (const Improvement& improvement : improvements) {
      changes.push_back({{"change", improvement.what},
                         {"iteration_ms", kMillisecondsPerSecond * improvement.seconds}});
    }
    return changes;
  };
  return {{"by", limits.by},
          {"iteration_ms", kMillisecondsPerSecond * limits.seconds},
          {"without_ms", kMillisecondsPerSecond * limits.without},
          {"estimated", limits.estimated},
          {"changes", list(limits.improvements)},
          {"setbacks", list(limits.setbacks)}};
}

std::string PlanTable(const PlannedModel& planned) {
  const auto& [model, plan, inputs, limits, slowest_factor, search, colocated] = planned;
  const std::vector<LayerRow> rows = LayerRows(planned);
  const Totals totals = Sum(rows, planned);
  return LayerTable(rows) + "\n" + BucketTable(plan) + "\n" + Grouped(ParameterCount(model)) +
         " parameters; workers: " + std::to_string(plan.workers()) +
         ", servers: " + std::to_string(plan.servers()) +
         ", samples a worker: " + std::to_string(model.batch()) + "\n" + SampleInputLines(inputs) +
         (colocated ? "floats that a node"
                    : "floats of each layer that a worker or a server, whichever has more,") +
         " sends and receives in an iteration: " + Grouped(totals.floats_ps) + " all over PS, " +
         Grouped(totals.floats_planned) + " as planned" + Saving(totals) + "\n" + ServerLoad(plan) +
         "\n" + TorusLine(plan) + LanesText(plan) + "\n" + SearchText(search) + Iteration(planned) +
         LimitsText(limits);
}

std::string PlanJson(const PlannedModel& planned) {
  const auto& [model, plan, inputs, limits, slowest_factor, search, colocated] = planned;
  const std::vector<LayerRow> rows = LayerRows(planned);
  const Totals totals = Sum(rows, planned);
  nlohmann::ordered_json json;
  json["net"] = model.name();
  json["parameters"] = ParameterCount(model);
  json["workers"] = plan.workers();
  json["servers"] = plan.servers();
  json["batch"] = model.batch();
  json["inputs"] = SampleInputsJson(inputs);
  json["iteration_ms"] = plan.iteration_ms();
  json["estimated"] = limits.seconds_estimated;
  json["simulated_ms"] = plan.simulated_ms() > 0 ? nlohmann::json(plan.simulated_ms()) : nullptr;
  json["compute_ms"] = plan.compute_ms() / slowest_factor;
  json["slowest_compute_ms"] = plan.compute_ms();
  json["local_steps"] = std::max(1, plan.local_steps());
  json["fifo"] = plan.fifo();
  json["lanes"] = LanesJson(plan, 1);
  json["grid"] = GridJson(plan);
  json["layers"] = nlohmann::ordered_json::array();
  for (const LayerRow& row : rows) {
    const bool pairs = UsesServers(row.bucket.scheme());
    nlohmann::ordered_json entry = {{"name", row.spec.name()},
                                    {"type", row.spec.type()},
                                    {"shape", WeightShape(row.spec)},
                                    {"parameters", FloatCount(row.spec)},
                                    {"scheme", SchemeName(row.bucket.scheme())},
                                    {"floats_ps", row.floats_ps},
                                    {"floats_sfb", nullptr},
                                    {"kv_pairs", pairs ? row.bucket.chunks_size() : 0}};
    if (row.spec.has_inner_product()) entry["floats_sfb"] = row.floats_sfb;
    json["layers"].push_back(std::move(entry));
  }
  json["buckets"] = nlohmann::ordered_json::array();
  for (const BucketPlan& bucket : plan.buckets())
    json["buckets"].push_back(BucketJson(model, bucket));
  json["total"] = {{"floats_ps", totals.floats_ps}, {"floats_planned", totals.floats_planned}};
  json["server_load"] = {{"floats", ServerLoads(plan)}, {"max_over_mean", LoadImbalance(plan)}};
  json["search"] = SearchJson(search);
  json["limits"] = LimitsJson(limits);
  return json.dump(2) + "\n";
}

}  // namespace poseidon
