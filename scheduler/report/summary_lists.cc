#include "scheduler/report/summary_lists.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "proto/bucket.h"
#include "proto/model_size.h"
#include "transport/membership/member.h"

namespace poseidon {
namespace {

std::vector<std::string> LayerNames(const ModelSpec& model, const BucketPlan& bucket) {
  std::vector<std::string> names;
  for (int i = 0; i < bucket.layer_count(); ++i) {
    names.push_back(model.layers(bucket.first_layer() + i).name());
  }
  return names;
}

// What falls on the floats [begin, end) of `floats` that share `bytes` evenly. The shares of
// adjoining ranges add up to `bytes`.
int64_t Share(int64_t bytes, int64_t begin, int64_t end, int64_t floats) {
  // A bucket of 2^32 floats, such as an embedding, has products of more than 2^63.
  const auto up_to = [&](int64_t place) {
    return static_cast<int64_t>(static_cast<__int128>(bytes) * place / floats);
  };
  return up_to(end) - up_to(begin);
}

}  // namespace

nlohmann::ordered_json LayersJson(const wire::PlanAndModel& plan,
                                  const std::vector<BucketSums>& sums) {
  auto list = nlohmann::ordered_json::array();
  for (int b = 0; b < plan.plan().buckets_size(); ++b) {
    const BucketPlan& bucket = plan.plan().buckets(b);
    const int64_t floats = FloatCount(bucket);
    int64_t layer_end = 0;
    for (int l = bucket.first_layer(); l < bucket.first_layer() + bucket.layer_count(); ++l) {
      const LayerSpec& layer = plan.model().layers(l);
      const int64_t begin = layer_end;
      layer_end += FloatCount(layer);
      list.push_back({{"name", layer.name()},
                      {"type", layer.type()},
                      {"scheme", SchemeName(bucket.scheme())},
                      {"parameters", layer_end - begin},
                      {"bytes_sent", Share(sums[b].bytes_sent, begin, layer_end, floats)},
                      {"bytes_received", Share(sums[b].bytes_received, begin, layer_end, floats)}});
    }
  }
  return list;
}

nlohmann::ordered_json BucketsJson(const wire::PlanAndModel& plan,
                                   const std::vector<BucketSums>& sums) {
  auto list = nlohmann::ordered_json::array();
  for (int b = 0; b < plan.plan().buckets_size(); ++b) {
    const BucketPlan& bucket = plan.plan().buckets(b);
    nlohmann::ordered_json entry = {{"name", bucket.name()},
                                    {"layers", LayerNames(plan.model(), bucket)},
                                    {"scheme", SchemeName(bucket.scheme())},
                                    {"codec", CodecName(bucket.codec())},
                                    {"parameters", FloatCount(bucket)},
                                    {"bytes_sent", sums[b].bytes_sent},
                                    {"bytes_received", sums[b].bytes_received},
                                    {"predicted_ms", nullptr},
                                    {"measured_ms", nullptr}};
    if (bucket.has_prediction()) entry["predicted_ms"] = bucket.prediction().exchange_ms();
    if (sums[b].measured_workers > 0) entry["measured_ms"] = sums[b].milliseconds;
    list.push_back(std::move(entry));
  }
  return list;
}

nlohmann::ordered_json TenuresJson(const Plan& plan, int64_t first) {
  auto list = nlohmann::ordered_json::array();
  for (const Tenure& tenure : plan.tenures()) {
    // A plan's tenures begin with iteration 0, wherever the run does.
    if (tenure.start_iteration() <= first) list.clear();
    list.push_back(
        {{"iteration", std::max(first, tenure.start_iteration())}, {"workers", tenure.workers()}});
  }
  if (list.empty()) list.push_back({{"iteration", first}, {"workers", plan.workers()}});
  return list;
}

nlohmann::ordered_json WorkersJson(const WorkerReports& reports) {
  auto list = nlohmann::ordered_json::array();
  for (const auto& [rank, report] : reports) {
    const WorkerBytes bytes = BytesOf(report);
    const nlohmann::ordered_json hash = report.parameter_hash();
    nlohmann::ordered_json pace;
    if (report.has_pace()) {
      pace = {{"iteration_ms", report.pace().iteration_ms()},
              {"spread", report.pace().spread()},
              {"iterations", report.pace().iterations()},
              {"stalls", report.pace().stalls()},
              {"stall_ms", report.pace().stall_ms()}};
    }
    list.push_back(
        {{"rank", rank},
         {"parameter_hash", report.parameter_hash().empty() ? nlohmann::ordered_json() : hash},
         {"iterations", report.iterations()},
         {"images", report.images()},
         {"training_seconds", report.training_seconds()},
         {"exchange_seconds", report.exchange_seconds()},
         {"exposed_seconds", report.exposed_seconds()},
         {"computing", std::move(pace)},
         {"bytes_sent", bytes.all.bytes_sent()},
         {"bytes_received", bytes.all.bytes_received()},
         {"bytes_to_own_server", bytes.own_server.bytes_sent()},
         {"bytes_from_own_server", bytes.own_server.bytes_received()},
         {"dropped_frames", report.dropped_frames()}});
  }
  return list;
}

nlohmann::ordered_json ServersJson(const std::vector<wire::PeerTraffic>& servers) {
  auto list = nlohmann::ordered_json::array();
  for (size_t rank = 0; rank < servers.size(); ++rank) {
    list.push_back({{"rank", rank},
                    {"bytes_sent", servers[rank].bytes_sent()},
                    {"bytes_received", servers[rank].bytes_received()}});
  }
  return list;
}

nlohmann::ordered_json LinksJson(const std::map<int, wire::LinkReport>& links, int workers) {
  constexpr double kMilliseconds = 1000;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& [rank, report] : links) {
    for (const wire::LinkMeasurement& link : report.links()) {
      nlohmann::ordered_json json;
      json["from"] = rank;
      json["to"] = (rank + link.distance()) % workers;
      json["latency_ms"] = kMilliseconds * link.latency_seconds();
      json["goodput_bytes_per_second"] = link.goodput_bytes_per_second();
      list.push_back(std::move(json));
    }
  }
  return list;
}

nlohmann::ordered_json StragglersJson(const std::vector<Straggler>& stragglers) {
  auto list = nlohmann::ordered_json::array();
  for (const Straggler& straggler : stragglers) {
    const nlohmann::ordered_json until =
        straggler.until ? nlohmann::ordered_json(*straggler.until) : nlohmann::ordered_json();
    list.push_back({{"worker", straggler.rank},
                    {"part", SlowPartName(straggler.part)},
                    {"ratio", straggler.ratio},
                    {"from", straggler.from},
                    {"until", until}});
  }
  return list;
}

namespace {

nlohmann::ordered_json NodesJson(const google::protobuf::RepeatedPtrField<wire::Node>& nodes) {
  auto list = nlohmann::ordered_json::array();
  for (const wire::Node& node : nodes) list.push_back(Describe(node));
  return list;
}

}  // namespace

nlohmann::ordered_json RecoveriesJson(const std::vector<wire::Recovered>& recoveries) {
  auto list = nlohmann::ordered_json::array();
  for (const wire::Recovered& recovered : recoveries) {
    list.push_back(
        {{"lost", NodesJson(recovered.lost())},
         {"left", NodesJson(recovered.left())},
         {"joined", NodesJson(recovered.joined())},
         {"workers", recovered.workers()},
         {"cause", recovered.cause()},
         {"iteration", recovered.iteration()},
         {"redone_iterations", recovered.reached() - recovered.iteration()},
         {"still_ms", 1000 * recovered.still_seconds()},
         {"detected_ms", 1000 * recovered.detected_seconds()},
         {"restored_ms", 1000 * recovered.restored_seconds()},
         {"total_ms", 1000 * (recovered.detected_seconds() + recovered.restored_seconds())}});
  }
  return list;
}

}  // namespace poseidon
