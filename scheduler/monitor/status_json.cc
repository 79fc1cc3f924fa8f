#include "scheduler/monitor/status_json.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "proto/bucket.h"
#include "proto/model_size.h"
#include "scheduler/monitor/node_state.h"
#include "scheduler/report/summary_lists.h"

namespace poseidon {
namespace {

using Json = nlohmann::ordered_json;

Json SlowJson(const std::optional<Straggler>& slow) {
  if (!slow) return nullptr;
  return {{"part", SlowPartName(slow->part)}, {"ratio", slow->ratio}};
}

Json LinkJson(const std::optional<MeasuredLink>& link) {
  if (!link) return nullptr;
  return {{"latency_ms", 1000 * link->latency_seconds},
          {"goodput_bytes_per_second", link->goodput_bytes_per_second}};
}

Json NodesJson(const JobStatus& status) {
  auto list = Json::array();
  for (const NodeState& state : NodeStates(status)) {
    const NodeStatus& node = status.nodes.at(state.node);
    Json entry = {{"role", RoleName(state.node.role)},
                  {"rank", state.node.rank},
                  {"host", node.host},
                  {"pid", node.pid},
                  {"state", state.state},
                  {"waits_for", state.waits_for}};
    if (state.node.role == Role::kWorker) {
      entry["iteration"] = node.done;
      entry["lag"] = state.lag;
      entry["silent_seconds"] = state.silent_seconds;
      entry["images"] = node.images;
      entry["iteration_ms"] = 1000 * node.iteration_seconds;
      entry["exchange_ms"] = 1000 * node.exchange_seconds;
      entry["exposed_ms"] = 1000 * node.exposed_seconds;
      entry["link"] = LinkJson(node.link);
      entry["slow"] = SlowJson(node.slow);
    }
    list.push_back(std::move(entry));
  }
  return list;
}

Json LayersOf(const wire::PlanAndModel& plan, const BucketPlan& bucket) {
  auto names = Json::array();
  for (int l = 0; l < bucket.layer_count(); ++l) {
    names.push_back(plan.model().layers(bucket.first_layer() + l).name());
  }
  return names;
}

Json BucketsOf(const JobStatus& status) {
  auto list = Json::array();
  if (status.plan == nullptr) return list;
  for (int b = 0; b < status.plan->plan().buckets_size(); ++b) {
    const BucketPlan& bucket = status.plan->plan().buckets(b);
    Json entry = {{"name", bucket.name()},
                  {"layers", LayersOf(*status.plan, bucket)},
                  {"scheme", SchemeName(bucket.scheme())},
                  {"codec", CodecName(bucket.codec())},
                  {"parameters", FloatCount(bucket)},
                  {"bytes", kFloatBytes * FloatCount(bucket)},
                  {"predicted_ms", nullptr},
                  {"measured_ms", status.measured_ms[b]}};
    if (bucket.has_prediction()) entry["predicted_ms"] = bucket.prediction().exchange_ms();
    list.push_back(std::move(entry));
  }
  return list;
}

Json TimelineJson(const JobStatus& status) {
  if (!status.timeline) return nullptr;
  const wire::IterationTimeline& timeline = *status.timeline;
  auto buckets = Json::array();
  for (int b = 0; b < timeline.buckets_size(); ++b) {
    buckets.push_back({{"name", status.plan->plan().buckets(b).name()},
                       {"ready_ms", timeline.buckets(b).ready_ms()},
                       {"fresh_ms", timeline.buckets(b).fresh_ms()}});
  }
  auto waits = Json::array();
  for (const wire::LayerWait& wait : timeline.waits()) {
    if (wait.layer() < 0 || wait.layer() >= status.plan->model().layers_size()) continue;
    waits.push_back({{"layer", status.plan->model().layers(wait.layer()).name()},
                     {"begin_ms", wait.begin_ms()},
                     {"end_ms", wait.end_ms()}});
  }
  return {{"worker", status.timeline_rank},
          {"iteration", timeline.iteration() + 1},
          {"duration_ms", timeline.duration_ms()},
          {"buckets", buckets},
          {"waits", waits}};
}

Json TestJson(const std::optional<LastTest>& test) {
  if (!test) return nullptr;
  Json json = {{"iteration", test->iteration}};
  json["accuracy"] = test->accuracy ? Json(*test->accuracy) : Json();
  json["loss"] = test->loss ? Json(*test->loss) : Json();
  return json;
}

Json NoticesJson(const std::deque<wire::Notice>& notices) {
  auto list = Json::array();
  for (const wire::Notice& notice : notices) {
    list.push_back({{"from", notice.rank() < 0 ? "scheduler"
                                               : NodeId{Role::kWorker, notice.rank()}.ToString()},
                    {"text", notice.text()}});
  }
  return list;
}

Json EndJson(const std::optional<wire::End>& end) {
  if (!end) return nullptr;
  const int code = end->job_exit_code() != 0 ? end->job_exit_code() : end->exit_code();
  return {{"exit_code", code}, {"reason", end->reason()}};
}

Json SecondsLeft(const JobStatus& status) {
  if (status.end || status.iterations <= 0) return nullptr;
  const int64_t left = std::max<int64_t>(status.iterations - status.iteration, 0);
  return static_cast<double>(left) * status.slowest_ms / 1000;
}

}  // namespace

Json HistoryJson(const History& history) {
  auto iterations = Json::array();
  auto losses = Json::array();
  auto rates = Json::array();
  auto durations = Json::array();
  auto exposed = Json::array();
  for (const History::Point& point : history.points()) {
    iterations.push_back(point.first + point.iterations);
    losses.push_back(point.loss());
    rates.push_back(point.images_per_second());
    durations.push_back(point.duration_ms());
    exposed.push_back(point.exposed_ms());
  }
  return {{"stride", history.stride()}, {"iteration", iterations},   {"loss", losses},
          {"images_per_second", rates}, {"iteration_ms", durations}, {"exposed_ms", exposed}};
}

Json StatusJson(const JobStatus& status) {
  Json json;
  json["version"] = status.version;
  json["job"] = status.job;
  json["phase"] = status.phase;
  json["waiting_for"] = status.waiting_for;
  json["elapsed_seconds"] = ToSeconds(status.now - status.started);
  json["seconds_since_progress"] =
      status.progressed == Time{} ? Json() : Json(ToSeconds(status.now - status.progressed));
  json["seconds_left"] = SecondsLeft(status);
  json["iteration"] = status.iteration;
  json["iterations"] = status.iterations > 0 ? Json(status.iterations) : Json();
  json["loss"] = status.loss;
  json["images"] = status.images;
  json["images_per_second"] = status.images_per_second;
  json["iteration_ms"] = status.iteration_ms;
  json["exposed_ms"] = status.exposed_ms;
  const bool predicted = status.plan != nullptr && status.plan->plan().iteration_ms() > 0;
  json["predicted_iteration_ms"] =
      predicted ? Json(ExpectedIterationMs(status.plan->plan())) : Json();
  json["test"] = TestJson(status.test);
  json["nodes"] = NodesJson(status);
  json["buckets"] = BucketsOf(status);
  json["timeline"] = TimelineJson(status);
  json["history"] = HistoryJson(status.history);
  json["recovery_count"] = status.recovery_count;
  json["recoveries"] = RecoveriesJson(status.recoveries);
  json["notices"] = NoticesJson(status.notices);
  json["end"] = EndJson(status.end);
  return json;
}

std::string JsonText(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace poseidon
