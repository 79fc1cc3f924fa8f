#include "scheduler/monitor/summary_status.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "proto/model_size.h"
#include "scheduler/monitor/history.h"
#include "scheduler/monitor/status_json.h"
#include "scheduler/report/unknown_value.h"

namespace poseidon {
namespace {

using Json = nlohmann::ordered_json;

double NumberAt(const Json& list, size_t index) {
  return index < list.size() && list[index].is_number() ? list[index].get<double>() : kUnknownValue;
}

// So large that 2^30 values of so many iterations each can be counted.
constexpr int64_t kMostStride = int64_t{1} << 30;

// Iterations that a value of the summary's lists is the mean of; the last one's may be fewer.
int64_t StrideOf(const Json& summary) {
  const auto stride = summary.value("stride", int64_t{1});
  if (stride < 1 || stride > kMostStride) {
    throw DataError("the summary's stride " + std::to_string(stride) + " is not from 1 to " +
                    std::to_string(kMostStride));
  }
  return stride;
}

// Iterations of the training before this run.
int64_t FirstIteration(const Json& summary) { return summary.value("first_iteration", int64_t{0}); }

// Iterations of the training, with those before this run.
int64_t IterationsDone(const Json& summary) {
  return FirstIteration(summary) + summary.at("iterations").get<int64_t>();
}

// Samples of all workers that were processed in an iteration, or in each of several; 0 if unknown.
int64_t ImagesAt(const Json& images, size_t index) {
  // So many that those of all iterations can be counted.
  constexpr double kMost = 1e12;
  const double mean = NumberAt(images, index);
  return std::isnan(mean) ? 0 : std::llround(std::clamp(mean, 0.0, kMost));
}

Json HistoryOf(const Json& summary) {
  const Json images = summary.value("images", Json::array());
  const Json together = summary.value("together_ms", Json::array());
  History history;
  for (size_t i = 0; i < summary.at("loss").size(); ++i) {
    wire::IterationRecord iteration;
    iteration.set_number(static_cast<int64_t>(i));
    iteration.set_loss(NumberAt(summary.at("loss"), i));
    iteration.set_duration_ms(NumberAt(summary.at("duration_ms"), i));
    iteration.set_together_ms(NumberAt(together, i));
    iteration.set_exposed_ms(NumberAt(summary.at("exposed_ms"), i));
    iteration.set_images(ImagesAt(images, i));
    history.Add(iteration);
  }
  Json json = HistoryJson(history);
  const int64_t stride = StrideOf(summary);
  const auto iterations = summary.at("iterations").get<int64_t>();
  for (Json& end : json["iteration"]) {
    end = FirstIteration(summary) + std::min(stride * end.get<int64_t>(), iterations);
  }
  json["stride"] = stride * history.stride();
  return json;
}

// What the worker was slow in at the end; null if it was not.
Json SlowOf(const Json& summary, int rank) {
  for (const Json& straggler : summary.at("stragglers")) {
    if (straggler.at("worker") != rank || !straggler.at("until").is_null()) continue;
    return {{"part", straggler.at("part")}, {"ratio", straggler.at("ratio")}};
  }
  return nullptr;
}

// The slowest link that the worker has measured; null if it has measured none.
Json LinkOf(const Json& summary, int rank) {
  Json slowest = nullptr;
  for (const Json& link : summary.value("links", Json::array())) {
    if (link.at("from") != rank) continue;
    const char* const goodput = "goodput_bytes_per_second";
    if (!slowest.is_null() && slowest.at(goodput) <= link.at(goodput)) continue;
    slowest = {{"latency_ms", link.at("latency_ms")}, {goodput, link.at(goodput)}};
  }
  return slowest;
}

// Whether the servers were there until all workers had come to the end.
bool ServersHaveFinished(const Json& summary) {
  const auto code = static_cast<ExitCode>(summary.at("exit_code").get<int>());
  const bool stopped = code == ExitCode::kInterrupted && !summary.at("workers").empty();
  return code == ExitCode::kSuccess || stopped;
}

Json NodesOf(const Json& summary) {
  auto nodes = Json::array();
  const char* const of_servers = ServersHaveFinished(summary) ? "finished" : "ended";
  const auto add = [&](const char* role, const char* state, const Json& entry, int64_t iteration) {
    nodes.push_back({{"role", role},
                     {"rank", entry.at("rank")},
                     {"host", ""},
                     {"pid", 0},
                     {"state", state},
                     {"waits_for", ""}});
    if (iteration < 0) return;
    Json& node = nodes.back();
    // Its own, which are fewer where it has taken a lost one's place.
    const auto own = entry.value("iterations", summary.at("iterations").get<int64_t>());
    const double iterations = static_cast<double>(std::max<int64_t>(own, 1));
    node["iteration"] = iteration;
    node["lag"] = 0;
    node["silent_seconds"] = nullptr;
    node["images"] = entry.at("images");
    for (const auto& [key, from] : {std::pair{"iteration_ms", "training_seconds"},
                                    {"exchange_ms", "exchange_seconds"},
                                    {"exposed_ms", "exposed_seconds"}}) {
      node[key] = 1000 * entry.at(from).get<double>() / iterations;
    }
    node["link"] = LinkOf(summary, entry.at("rank").get<int>());
    node["slow"] = SlowOf(summary, entry.at("rank").get<int>());
  };
  for (const Json& server : summary.at("servers")) add("server", of_servers, server, -1);
  for (const Json& worker : summary.at("workers")) {
    add("worker", "finished", worker, IterationsDone(summary));
  }
  return nodes;
}

Json BucketsOf(const Json& summary) {
  auto buckets = Json::array();
  for (const Json& bucket : summary.at("buckets")) {
    buckets.push_back({{"name", bucket.at("name")},
                       {"layers", bucket.at("layers")},
                       {"scheme", bucket.at("scheme")},
                       {"codec", bucket.at("codec")},
                       {"parameters", bucket.at("parameters")},
                       {"bytes", kFloatBytes * bucket.at("parameters").get<int64_t>()},
                       {"predicted_ms", bucket.at("predicted_ms")},
                       {"measured_ms", bucket.at("measured_ms")}});
  }
  return buckets;
}

Json TestOf(const Json& summary) {
  if (!summary.contains("test_accuracy") && !summary.contains("test_loss")) return nullptr;
  // That of a job which was stopped may be of any iteration before, which nobody tells.
  const bool last = summary.at("exit_code") == 0;
  return {{"iteration", last ? Json(IterationsDone(summary)) : Json()},
          {"accuracy", summary.value("test_accuracy", Json())},
          {"loss", summary.value("test_loss", Json())}};
}

// Of the list's values, of all iterations that tell one.
struct Told {
  double sum = 0;
  double iterations = 0;
};

Told ToldIn(const Json& summary, const char* key) {
  const Json& list = summary.at(key);
  const int64_t stride = StrideOf(summary);
  int64_t left = summary.at("iterations").get<int64_t>();
  Told told;
  for (size_t i = 0; i < list.size() && left > 0; ++i) {
    const int64_t iterations = std::min(stride, left);
    left -= iterations;
    const double mean = NumberAt(list, i);
    if (std::isnan(mean)) continue;
    told.sum += mean * static_cast<double>(iterations);
    told.iterations += static_cast<double>(iterations);
  }
  return told;
}

// iteration_ms is without test phases, as images_per_second is, where a worker has come to the end.
void AddIteration(const Json& summary, Json& json) {
  const Told duration = ToldIn(summary, "duration_ms");
  const Json own = summary.value("iteration_ms", Json());
  const bool told = own.is_number() && own.get<double>() > 0;
  const double mean = told ? own.get<double>() : duration.sum / duration.iterations;
  json["iteration_ms"] = mean;
  json["exposed_ms"] = ToldIn(summary, "exposed_ms").sum / duration.sum * mean;
}

bool IsAfterALoss(const Json& recovery) {
  return !recovery.at("lost").empty() ||
         (recovery.at("joined").empty() && recovery.at("left").empty());
}

Json Convert(const Json& summary) {
  Json json;
  json["version"] = 1;
  json["job"] = summary.at("job");
  json["phase"] = "ended";
  json["waiting_for"] = "";
  json["elapsed_seconds"] = summary.value("elapsed_seconds", Json());
  json["seconds_since_progress"] = nullptr;
  json["seconds_left"] = nullptr;
  json["iteration"] = IterationsDone(summary);
  json["iterations"] = summary.at("exit_code") == 0 ? Json(IterationsDone(summary)) : Json();
  json["loss"] = NumberAt(summary.at("loss"), summary.at("loss").size() - 1);
  const bool counted = summary.contains("images");
  json["images"] = counted ? Json(std::llround(ToldIn(summary, "images").sum)) : Json();
  json["images_per_second"] = summary.at("images_per_second");
  AddIteration(summary, json);
  json["predicted_iteration_ms"] = summary.value("predicted_iteration_ms", Json());
  json["test"] = TestOf(summary);
  json["nodes"] = NodesOf(summary);
  json["buckets"] = BucketsOf(summary);
  json["timeline"] = nullptr;
  json["history"] = HistoryOf(summary);
  json["recovery_count"] = std::ranges::count_if(summary.at("recoveries"), IsAfterALoss);
  json["recoveries"] = summary.at("recoveries");
  json["notices"] = Json::array();
  json["end"] = {{"exit_code", summary.at("exit_code")}, {"reason", summary.at("reason")}};
  return json;
}

}  // namespace

Json StatusOfSummary(const std::string& summary, const std::string& name) {
  try {
    return Convert(Json::parse(summary));
  } catch (const Json::exception& error) {
    throw DataError(name + " is no summary.json of this version: " + error.what());
  }
}

}  // namespace poseidon
