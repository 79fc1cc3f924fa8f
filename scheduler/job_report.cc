#include "scheduler/job_report.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>

#include "scheduler/planner.h"

namespace poseidon {
namespace {

// Often enough to see that it lives, rarely enough to read.
constexpr Duration kLineInterval = Seconds(1);

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

const char* SchemeName(Scheme scheme) { return scheme == SFB ? "SFB" : "PS"; }

int64_t Parameters(const LayerPlan& layer) {
  int64_t floats = 0;
  for (const Chunk& chunk : layer.chunks()) floats += chunk.size();
  return floats;
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
  iteration.exchange += progress.exchange_seconds();
  iteration.exposed += progress.exposed_seconds();
  if (++iteration.reports < workers_) return std::nullopt;

  const Iteration done = iteration;
  open_.erase(progress.iteration());
  const double loss = done.loss / workers_;
  loss_.push_back(loss);
  images_since_line_ += done.images;
  exchange_since_line_ += done.exchange;
  exposed_since_line_ += done.exposed;
  if (!last_line_) last_line_ = now;  // the first interval starts with the first iteration's end
  const bool last = progress.iteration() + 1 == progress.total_iterations();
  const double seconds = ToSeconds(now - *last_line_);
  if (!last && (now - *last_line_ < kLineInterval)) return std::nullopt;
  const double exposed =
      exchange_since_line_ > 0 ? 100 * exposed_since_line_ / exchange_since_line_ : 0;
  line = Format("iteration %lld/%lld  loss %.4f", static_cast<long long>(progress.iteration() + 1),
                static_cast<long long>(progress.total_iterations()), loss);
  if (seconds > 0) line += Format("  %.0f images/s", images_since_line_ / seconds);
  line += Format("  communication not hidden %.0f%%", exposed);
  last_line_ = now;
  images_since_line_ = 0;
  exchange_since_line_ = 0;
  exposed_since_line_ = 0;
  return line;
}

std::string JobReport::PlanTable() const {
  size_t width = 5;
  for (const LayerPlan& layer : plan_.plan().layers()) width = std::max(width, layer.name().size());
  std::string table = Format("%-*s  %-13s  %-6s  %12s  %8s\n", static_cast<int>(width), "layer",
                             "type", "scheme", "parameters", "KV pairs");
  for (int l = 0; l < plan_.plan().layers_size(); ++l) {
    const LayerPlan& layer = plan_.plan().layers(l);
    table += Format("%-*s  %-13s  %-6s  %12lld  %8s\n", static_cast<int>(width),
                    layer.name().c_str(), plan_.model().layers(l).type().c_str(),
                    SchemeName(layer.scheme()), static_cast<long long>(Parameters(layer)),
                    layer.scheme() == PS ? std::to_string(layer.chunks_size()).c_str() : "-");
  }
  table += Format("fullest server holds %.2f times the mean", LoadImbalance(plan_.plan()));
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
  json["loss"] = loss_;
  json["layers"] = nlohmann::ordered_json::array();
  for (int l = 0; l < plan_.plan().layers_size(); ++l) {
    const LayerPlan& layer = plan_.plan().layers(l);
    int64_t sent = 0;
    int64_t received = 0;
    for (const auto& [rank, report] : finished_) {
      if (l >= report.layers_size()) continue;
      sent += report.layers(l).bytes_sent();
      received += report.layers(l).bytes_received();
    }
    json["layers"].push_back({{"name", layer.name()},
                              {"type", plan_.model().layers(l).type()},
                              {"scheme", SchemeName(layer.scheme())},
                              {"parameters", Parameters(layer)},
                              {"bytes_sent", sent},
                              {"bytes_received", received}});
  }
  json["workers"] = nlohmann::ordered_json::array();
  for (const auto& [rank, report] : finished_) {
    json["workers"].push_back({{"rank", rank},
                               {"parameter_hash", report.parameter_hash()},
                               {"images", report.images()},
                               {"training_seconds", report.training_seconds()},
                               {"exchange_seconds", report.exchange_seconds()},
                               {"exposed_seconds", report.exposed_seconds()},
                               {"dropped_frames", report.dropped_frames()}});
  }
  return json.dump(2) + "\n";
}

}  // namespace poseidon
