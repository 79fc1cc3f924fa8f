#include "scheduler/job_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "planner/placement.h"
#include "proto/bucket.h"
#include "proto/model_size.h"
#include "transport/address.h"

namespace poseidon {
namespace {

// Often enough to see that it lives, rarely enough to read.
constexpr Duration kLineInterval = Seconds(1);

// The buckets that are most off, at the end: enough to see a pattern, few enough for a glance.
constexpr size_t kBucketsToReview = 3;

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::vector<std::string> LayerNames(const ModelSpec& model, const BucketPlan& bucket) {
  std::vector<std::string> names;
  for (int i = 0; i < bucket.layer_count(); ++i) {
    names.push_back(model.layers(bucket.first_layer() + i).name());
  }
  return names;
}

// What falls on the floats [begin, end) of `floats` that share `bytes` evenly. The shares of
// adjoining ranges add up to `bytes`; products stay below 2^63 for models below 2^31 floats.
int64_t Share(int64_t bytes, int64_t begin, int64_t end, int64_t floats) {
  const int64_t rest = bytes % floats;
  return bytes / floats * (end - begin) + rest * end / floats - rest * begin / floats;
}

bool IsServer(const wire::PeerTraffic& peer) {
  return peer.role() == static_cast<uint32_t>(Role::kServer) && peer.rank() >= 0;
}

struct WorkerBytes {
  wire::PeerTraffic all;
  wire::PeerTraffic own_server;  // the one of the worker's rank
};

WorkerBytes BytesOf(const wire::WorkerReport& report) {
  WorkerBytes bytes;
  for (const wire::PeerTraffic& peer : report.peers()) {
    bytes.all.set_bytes_sent(bytes.all.bytes_sent() + peer.bytes_sent());
    bytes.all.set_bytes_received(bytes.all.bytes_received() + peer.bytes_received());
    if (IsServer(peer) && peer.rank() == report.rank()) bytes.own_server = peer;
  }
  return bytes;
}

}  // namespace

std::optional<std::string> JobReport::OnProgress(const wire::Progress& progress, Time now) {
  std::string line;
  if (progress.has_test_accuracy() || progress.has_test_loss()) {
    line = Format("test at iteration %lld:", static_cast<long long>(progress.iteration()));
    if (progress.has_test_accuracy()) line += Format("  accuracy %.4f", progress.test_accuracy());
    if (progress.has_test_loss()) line += Format("  loss %.4f", progress.test_loss());
    return line;
  }
  Iteration& iteration = open_[progress.iteration()];
  iteration.loss += progress.loss();
  iteration.images += progress.images();
  iteration.seconds += progress.iteration_seconds();
  iteration.exchange += progress.exchange_seconds();
  iteration.exposed += progress.exposed_seconds();
  if (++iteration.reports < workers_) return std::nullopt;

  const Iteration done = iteration;
  open_.erase(progress.iteration());
  const double loss = done.loss / workers_;
  if (loss_.empty()) first_iteration_ = progress.iteration();
  loss_.push_back(loss);
  duration_ms_.push_back(1000 * done.seconds / workers_);
  exposed_ms_.push_back(1000 * done.exposed / workers_);
  images_since_line_ += done.images;
  exchange_since_line_ += done.exchange;
  exposed_since_line_ += done.exposed;
  if (!last_line_) last_line_ = now;  // the first interval starts with the first iteration's end
  const bool last = progress.iteration() + 1 == progress.total_iterations();
  const double seconds = ToSeconds(now - *last_line_);
  if (!last && (now - *last_line_ < kLineInterval)) return std::nullopt;
  const double exposed =
      exchange_since_line_ > 0 ? 100 * exposed_since_line_ / exchange_since_line_ : 0;
  line = Format("iteration %lld/%lld  loss %.4f", static_cast<long long>(progress.iteration()) + 1,
                static_cast<long long>(progress.total_iterations()), loss);
  const auto images = static_cast<double>(images_since_line_);
  if (seconds > 0) line += Format("  %.0f images/s", images / seconds);
  line += Format("  communication not hidden %.0f%%", exposed);
  last_line_ = now;
  images_since_line_ = 0;
  exchange_since_line_ = 0;
  exposed_since_line_ = 0;
  return line;
}

std::string JobReport::PlanTable() const {
  const Plan& plan = plan_.plan();
  int width = 6;
  for (const BucketPlan& bucket : plan.buckets()) {
    width = std::max(width, static_cast<int>(bucket.name().size()));
  }
  std::string table = Format("%-*s  %6s  %-16s  %-5s  %12s  %8s", width, "bucket", "layers",
                             "scheme", "codec", "parameters", "KV pairs");
  const bool predicted = plan.iteration_ms() > 0;
  table += predicted ? "  predicted ms\n" : "\n";
  for (const BucketPlan& bucket : plan.buckets()) {
    table +=
        Format("%-*s  %6d  %-16s  %-5s  %12lld  %8s", width, bucket.name().c_str(),
               bucket.layer_count(), SchemeName(bucket.scheme()).c_str(),
               CodecName(bucket.codec()).c_str(), static_cast<long long>(FloatCount(bucket)),
               UsesServers(bucket.scheme()) ? std::to_string(bucket.chunks_size()).c_str() : "-");
    table += predicted ? Format("  %12.2f\n", bucket.prediction().exchange_ms()) : "\n";
  }
  table += Format("fullest server holds %.2f times the mean", LoadImbalance(plan));
  if (predicted) {
    table += Format("\npredicted iteration %.2f ms; without any exchange %.2f ms",
                    plan.iteration_ms(), plan.compute_ms());
  }
  return table;
}

double JobReport::ImagesPerSecond() const {
  int64_t images = 0;
  double seconds = 0;
  for (const auto& [rank, report] : finished_) {
    images += report.images();
    seconds = std::max(seconds, report.training_seconds());
  }
  return seconds > 0 ? static_cast<double>(images) / seconds : 0;
}

double JobReport::ExposedShare() const {
  double exchange = 0;
  double exposed = 0;
  for (const auto& [rank, report] : finished_) {
    exchange += report.exchange_seconds();
    exposed += report.exposed_seconds();
  }
  return exchange > 0 ? exposed / exchange : 0;
}

bool JobReport::HashesAgree() const {
  std::set<std::string> hashes;
  for (const auto& [rank, report] : finished_) hashes.insert(report.parameter_hash());
  return hashes.size() <= 1;
}

std::string JobReport::Closing() const {
  if (finished_.empty()) return "no worker finished";
  const wire::WorkerReport& first = finished_.begin()->second;
  std::string text =
      Format("%lld iterations, %.0f images/s, communication not hidden %.0f%%",
             static_cast<long long>(first.iterations()), ImagesPerSecond(), 100 * ExposedShare());
  if (first.has_test_accuracy()) text += Format(", test accuracy %.4f", first.test_accuracy());
  if (first.has_test_loss()) text += Format(", test loss %.4f", first.test_loss());
  text += HashesAgree()
              ? "\nall workers ended with the same parameters (hash " + first.parameter_hash() + ")"
              : "\nTHE WORKERS' PARAMETERS DIFFER: see workers[] in summary.json";
  return text + PredictionReview();
}

std::vector<JobReport::BucketSums> JobReport::SumBuckets() const {
  std::vector<BucketSums> buckets(plan_.plan().buckets_size());
  for (const auto& [rank, report] : finished_) {
    size_t next = 0;
    for (const wire::BucketTraffic& traffic : report.buckets()) {
      if (traffic.plan() != plan_.plan().number() || next == buckets.size()) continue;
      BucketSums& sums = buckets[next++];
      sums.bytes_sent += traffic.bytes_sent();
      sums.bytes_received += traffic.bytes_received();
      if (traffic.exchanges() == 0) continue;
      sums.milliseconds +=
          1000 * traffic.exchange_seconds() / static_cast<double>(traffic.exchanges());
      ++sums.measured_workers;
    }
  }
  for (BucketSums& bucket : buckets) {
    if (bucket.measured_workers > 0) bucket.milliseconds /= bucket.measured_workers;
  }
  return buckets;
}

std::vector<wire::PeerTraffic> JobReport::SumServers() const {
  std::vector<wire::PeerTraffic> servers(plan_.plan().servers());
  for (const auto& [rank, report] : finished_) {
    for (const wire::PeerTraffic& peer : report.peers()) {
      if (!IsServer(peer) || peer.rank() >= plan_.plan().servers()) continue;
      wire::PeerTraffic& server = servers[peer.rank()];
      server.set_bytes_received(server.bytes_received() + peer.bytes_sent());
      server.set_bytes_sent(server.bytes_sent() + peer.bytes_received());
    }
  }
  return servers;
}

double JobReport::IterationMilliseconds() const {
  double slowest = 0;
  for (const auto& [rank, report] : finished_) {
    if (report.iterations() == 0) continue;
    slowest = std::max(slowest,
                       1000 * report.training_seconds() / static_cast<double>(report.iterations()));
  }
  return slowest;
}

std::optional<double> JobReport::MillisecondsSinceSwitch() const {
  const int64_t skipped = plan_.plan().start_iteration() - first_iteration_ + 1;
  if (plan_.plan().number() == 0 || skipped >= static_cast<int64_t>(duration_ms_.size())) {
    return std::nullopt;
  }
  std::vector<double> since(duration_ms_.begin() + skipped, duration_ms_.end());
  // Not the mean: some iterations wait for worker 0's test phase.
  const auto middle = since.begin() + static_cast<int64_t>(since.size() / 2);
  std::nth_element(since.begin(), middle, since.end());
  return *middle;
}

std::string JobReport::PredictionReview() const {
  const Plan& plan = plan_.plan();
  const std::optional<double> since_switch = MillisecondsSinceSwitch();
  const double measured = since_switch.value_or(IterationMilliseconds());
  if (plan.iteration_ms() <= 0 || measured <= 0) return "";
  std::string text =
      Format("\niteration: predicted %.2f ms, measured %.2f ms (%+.0f%%)", plan.iteration_ms(),
             measured, 100 * (measured / plan.iteration_ms() - 1));
  if (since_switch) {
    text +=
        Format(" since the plan of iteration %lld", static_cast<long long>(plan.start_iteration()));
  }
  const std::vector<BucketSums> buckets = SumBuckets();
  std::vector<std::pair<double, int>> off;  // how many milliseconds, which bucket
  for (int b = 0; b < plan.buckets_size(); ++b) {
    if (buckets[b].measured_workers == 0 || !plan.buckets(b).has_prediction()) continue;
    const double predicted = plan.buckets(b).prediction().exchange_ms();
    off.push_back({-std::abs(buckets[b].milliseconds - predicted), b});
  }
  std::sort(off.begin(), off.end());
  for (size_t i = 0; i < std::min<size_t>(off.size(), kBucketsToReview); ++i) {
    const BucketPlan& bucket = plan.buckets(off[i].second);
    text += Format("\n  bucket %.100s (%s): predicted %.2f ms, measured %.2f ms",
                   bucket.name().c_str(), SchemeName(bucket.scheme()).c_str(),
                   bucket.prediction().exchange_ms(), buckets[off[i].second].milliseconds);
  }
  return text;
}

std::string JobReport::Json(const std::string& job_name, const wire::End& end) const {
  nlohmann::ordered_json json;
  json["job"] = job_name;
  json["exit_code"] = end.exit_code();
  json["reason"] = end.reason();
  json["iterations"] = loss_.size();
  if (!finished_.empty()) {
    const wire::WorkerReport& first = finished_.begin()->second;
    if (first.has_test_accuracy()) json["test_accuracy"] = first.test_accuracy();
    if (first.has_test_loss()) json["test_loss"] = first.test_loss();
  }
  json["images_per_second"] = ImagesPerSecond();
  json["communication_not_hidden"] = ExposedShare();
  json["iteration_ms"] = IterationMilliseconds();
  if (plan_.plan().iteration_ms() > 0) {
    json["predicted_iteration_ms"] = plan_.plan().iteration_ms();
    json["compute_ms"] = plan_.plan().compute_ms();
  }
  json["loss"] = loss_;
  json["duration_ms"] = duration_ms_;
  json["exposed_ms"] = exposed_ms_;
  const std::vector<BucketSums> sums = SumBuckets();
  json["layers"] = nlohmann::ordered_json::array();
  for (int b = 0; b < plan_.plan().buckets_size(); ++b) {
    const BucketPlan& bucket = plan_.plan().buckets(b);
    const int64_t floats = FloatCount(bucket);
    int64_t layer_end = 0;
    for (int l = bucket.first_layer(); l < bucket.first_layer() + bucket.layer_count(); ++l) {
      const LayerSpec& layer = plan_.model().layers(l);
      const int64_t begin = layer_end;
      layer_end += FloatCount(layer);
      json["layers"].push_back(
          {{"name", layer.name()},
           {"type", layer.type()},
           {"scheme", SchemeName(bucket.scheme())},
           {"parameters", layer_end - begin},
           {"bytes_sent", Share(sums[b].bytes_sent, begin, layer_end, floats)},
           {"bytes_received", Share(sums[b].bytes_received, begin, layer_end, floats)}});
    }
  }
  json["buckets"] = nlohmann::ordered_json::array();
  for (int b = 0; b < plan_.plan().buckets_size(); ++b) {
    const BucketPlan& bucket = plan_.plan().buckets(b);
    nlohmann::ordered_json entry = {{"name", bucket.name()},
                                    {"layers", LayerNames(plan_.model(), bucket)},
                                    {"scheme", SchemeName(bucket.scheme())},
                                    {"codec", CodecName(bucket.codec())},
                                    {"parameters", FloatCount(bucket)},
                                    {"bytes_sent", sums[b].bytes_sent},
                                    {"bytes_received", sums[b].bytes_received},
                                    {"predicted_ms", nullptr},
                                    {"measured_ms", nullptr}};
    if (bucket.has_prediction()) entry["predicted_ms"] = bucket.prediction().exchange_ms();
    if (sums[b].measured_workers > 0) entry["measured_ms"] = sums[b].milliseconds;
    json["buckets"].push_back(std::move(entry));
  }
  json["workers"] = nlohmann::ordered_json::array();
  for (const auto& [rank, report] : finished_) {
    const WorkerBytes bytes = BytesOf(report);
    json["workers"].push_back({{"rank", rank},
                               {"parameter_hash", report.parameter_hash()},
                               {"images", report.images()},
                               {"training_seconds", report.training_seconds()},
                               {"exchange_seconds", report.exchange_seconds()},
                               {"exposed_seconds", report.exposed_seconds()},
                               {"bytes_sent", bytes.all.bytes_sent()},
                               {"bytes_received", bytes.all.bytes_received()},
                               {"bytes_to_own_server", bytes.own_server.bytes_sent()},
                               {"bytes_from_own_server", bytes.own_server.bytes_received()},
                               {"dropped_frames", report.dropped_frames()}});
  }
  json["servers"] = nlohmann::ordered_json::array();
  const std::vector<wire::PeerTraffic> servers = SumServers();
  for (size_t rank = 0; rank < servers.size(); ++rank) {
    json["servers"].push_back({{"rank", rank},
                               {"bytes_sent", servers[rank].bytes_sent()},
                               {"bytes_received", servers[rank].bytes_received()}});
  }
  return json.dump(2) + "\n";
}

}  // namespace poseidon
