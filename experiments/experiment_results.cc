#include "experiments/experiment_results.h"

#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/atomic_file.h"
#include "core/error.h"
#include "core/files/directories.h"
#include "core/files/regular_file.h"
#include "core/text/listed.h"
#include "core/units.h"
#include "experiments/experiment_points.h"
#include "experiments/result_columns.h"
#include "launch/process_cluster.h"

namespace poseidon {
namespace {

using Json = nlohmann::ordered_json;

constexpr ExperimentMode kModes[] = {ExperimentMode::kSimulate, ExperimentMode::kEmulate,
                                     ExperimentMode::kRun};

// What of them decides a point's result.
Circumstances Deciding(Circumstances all, const ExperimentPoint& point, ExperimentMode mode) {
  const bool replay = point.job.training().engine() == Training::REPLAY;
  if (mode != ExperimentMode::kEmulate || !replay) all.slow_motion = 0;
  const auto machines = static_cast<size_t>(MachinesOf(point.job));
  all.hosts.resize(mode == ExperimentMode::kRun ? std::min(all.hosts.size(), machines) : 0);
  return all;
}

Json ToJson(const PointResult& result, const Circumstances& circumstances) {
  Json json = {{"iteration_seconds", result.iteration},
               {"compute_seconds", result.compute},
               {"gpu_busy", result.busy},
               {"bytes_out", result.bytes_sent},
               {"bytes_in", result.bytes_received},
               {"bytes_mean", result.mean_bytes},
               {"predicted_seconds", result.predicted},
               {"schemes", result.schemes}};
  if (!result.losses.empty()) json["loss"] = result.losses;
  if (result.accuracy) json["accuracy"] = *result.accuracy;
  if (result.goodput) json["goodput"] = *result.goodput;
  if (!circumstances.version.empty()) json["version"] = circumstances.version;
  if (circumstances.slow_motion > 0) json["slow_motion"] = circumstances.slow_motion;
  if (!circumstances.hosts.empty()) json["hosts"] = circumstances.hosts;
  return json;
}

PointResult FromJson(const Json& json) {
  PointResult result;
  result.iteration = json.at("iteration_seconds");
  result.compute = json.at("compute_seconds");
  result.busy = json.at("gpu_busy");
  result.bytes_sent = json.at("bytes_out");
  result.bytes_received = json.at("bytes_in");
  result.mean_bytes = json.at("bytes_mean");
  result.predicted = json.at("predicted_seconds");
  result.schemes = json.at("schemes");
  if (json.contains("loss")) result.losses = json.at("loss").get<std::vector<double>>();
  if (json.contains("accuracy")) result.accuracy = json.at("accuracy").get<double>();
  if (json.contains("goodput")) result.goodput = json.at("goodput").get<double>();
  return result;
}

Circumstances CircumstancesFrom(const Json& json) {
  return {.version = json.value("version", std::string()),
          .slow_motion = json.value("slow_motion", 0),
          .hosts = json.value("hosts", std::vector<std::string>())};
}

// Nothing if the file is not there, or is not what Put has written.
std::optional<std::pair<PointResult, Circumstances>> ReadResult(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return std::nullopt;
  try {
    const Json json = Json::parse(ReadRegularFile(path, ExitCode::kFailure));
    return std::pair(FromJson(json), CircumstancesFrom(json));
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

// One line of results.csv.
class CsvRow {
 public:
  void Add(const std::string& text) {
    if (!line_.empty() || count_ > 0) line_ += ',';
    ++count_;
    if (text.find_first_of(",\"\n") == std::string::npos) {
      line_ += text;
      return;
    }
    line_ += '"';
    for (const char letter : text) line_ += letter == '"' ? "\"\"" : std::string(1, letter);
    line_ += '"';
  }
  // Nine digits: what a double that was measured has, and more than anybody reads.
  void Add(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", value);
    Add(std::string(text));
  }
  void Add(int64_t value) { Add(std::to_string(value)); }
  void Add(int value) { Add(std::to_string(value)); }
  // Of something that not every point has.
  template <typename Value>
  void Add(const std::optional<Value>& value) {
    value ? Add(*value) : Add(std::string());
  }

  std::string line() const { return line_ + "\n"; }

 private:
  std::string line_;
  int count_ = 0;
};

std::string Heading() {
  CsvRow row;
  for (const std::string_view column : kResultColumns) row.Add(std::string(column));
  return row.line();
}

int64_t ParametersOf(const ModelSpec& model) {
  int64_t floats = 0;
  for (const LayerSpec& layer : model.layers()) {
    for (const BlobSpec& blob : layer.blobs()) {
      int64_t count = 1;
      for (const int64_t extent : blob.shape()) count *= extent;
      floats += count;
    }
  }
  return floats;
}

std::optional<double> MtbfHours(const ExperimentPoint& point) {
  constexpr double kHour = 3600;
  if (!point.failures) return std::nullopt;
  return ToSeconds(ParseDuration(point.failures->mtbf(0))) / kHour;
}

// The columns that say what was run.
void AddSetting(const ExperimentPoint& point, ExperimentMode mode, CsvRow& row) {
  const Cluster& cluster = point.job.cluster();
  row.Add(point.system);
  row.Add(point.net);
  row.Add(cluster.workers());
  row.Add(cluster.servers());
  row.Add(cluster.devices_per_worker());
  row.Add(cluster.workers() * cluster.devices_per_worker());
  const double gigabits = static_cast<double>(ParseBitRate(cluster.network().bandwidth())) / 1e9;
  row.Add(gigabits);
  row.Add(ToSeconds(ParseDuration(cluster.network().latency())) * 1e6);
  row.Add(point.condition.name());
  row.Add(MtbfHours(point));
  row.Add(point.sweep);
  row.Add(std::string(NameOf(mode)));
  row.Add(point.policy);
  row.Add(point.model.batch());
  row.Add(ParametersOf(point.model));
  row.Add(gigabits * cluster.network().goodput_share());
  row.Add(ToSeconds(ParseDuration(cluster.network().message_cost())) * 1e6);
  row.Add(cluster.flops());
  row.Add(cluster.reduction_rate());
  row.Add(cluster.update_rate());
}

// The columns that say what came of it.
void AddOutcome(const ExperimentPoint& point, const PointResult& result, CsvRow& row) {
  const Cluster& cluster = point.job.cluster();
  const double devices = cluster.workers() * cluster.devices_per_worker();
  const double speedup = SpeedupOf(point, result);
  const double images = static_cast<double>(point.model.batch() * cluster.workers());
  row.Add(result.iteration);
  row.Add(result.compute);
  row.Add(images / result.iteration);
  row.Add(speedup);
  row.Add(speedup / devices);
  row.Add(result.busy);
  row.Add(result.bytes_sent);
  row.Add(result.bytes_received);
  // The planner says what the busiest machine moves only.
  row.Add(point.plan_only ? std::nullopt : std::optional(result.mean_bytes));
  const double busiest = result.bytes_sent + result.bytes_received;
  row.Add(result.mean_bytes > 0 ? std::optional(busiest / result.mean_bytes) : std::nullopt);
  row.Add(result.predicted > 0 ? std::optional(result.predicted) : std::nullopt);
  row.Add(result.schemes);
  row.Add(result.accuracy);
  row.Add(result.goodput);
}

// The columns that compare it with what others have published.
void AddPublished(const Experiment& experiment, const ExperimentPoint& point, double speedup,
                  CsvRow& row) {
  const auto published = PublishedFor(experiment, point);
  row.Add(published ? std::optional(published->speedup) : std::nullopt);
  row.Add(published ? std::optional(speedup / published->speedup - 1) : std::nullopt);
  row.Add(std::string(published ? (published->fitted ? "true" : "false") : ""));
  row.Add(published ? published->source : "");
}

// In the order of kResultColumns.
std::string LineOf(const Experiment& experiment, const ExperimentPoint& point, ExperimentMode mode,
                   const PointResult& result) {
  CsvRow row;
  AddSetting(point, mode, row);
  AddOutcome(point, result, row);
  AddPublished(experiment, point, SpeedupOf(point, result), row);
  // The same in every mode, where settings that are no column tell two points apart.
  row.Add(KeyOf(point, ExperimentMode::kSimulate));
  row.Add(KeyOf(point, mode));
  return row.line();
}

std::string ExperimentAsJson(const Experiment& experiment) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  std::string json;
  const auto status = google::protobuf::util::MessageToJsonString(experiment, &json, options);
  if (!status.ok()) throw Error(ExitCode::kFailure, "the experiment can't be written as JSON");
  return json;
}

// Of some that may be fewer than those of another point.
bool BeginsLike(const std::vector<std::string>& hosts, const std::vector<std::string>& others) {
  const auto [mine, theirs] =
      std::mismatch(hosts.begin(), hosts.end(), others.begin(), others.end());
  return mine == hosts.end() || theirs == others.end();
}

// In what results that are there came to be otherwise than those of now do, of the same mode;
// empty: in nothing that they tell of.
std::string DifferenceOf(const Circumstances& there, const Circumstances& now) {
  if (there.slow_motion > 0 && there.slow_motion != now.slow_motion) {
    return "--slow_motion=" + std::to_string(there.slow_motion) + ", not " +
           std::to_string(now.slow_motion);
  }
  if (BeginsLike(there.hosts, now.hosts)) return "";
  return "the hosts " + Listed(there.hosts) + ", not " + Listed(now.hosts);
}

// Its table would be lost.
void RefuseAnothersDirectory(const std::string& directory, const std::string& name) {
  const std::string path = directory + "/experiment.json";
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return;
  const Json before = Json::parse(ReadRegularFile(path, ExitCode::kConfigError), nullptr,
                                  /*allow_exceptions=*/false);
  if (!before.is_object() || !before.contains("name") || before["name"] == name) return;
  throw ConfigError(directory + " holds the results of the experiment " + before["name"].dump() +
                    ", not of \"" + name + "\"; name another --out");
}

}  // namespace

ExperimentResults::ExperimentResults(std::string directory, const Experiment& experiment,
                                     std::vector<ExperimentPoint> points)
    : directory_(std::move(directory)), experiment_(experiment), points_(std::move(points)) {
  RefuseAnothersDirectory(directory_, experiment_.name());
  for (size_t point = 0; point < points_.size(); ++point) {
    for (const ExperimentMode mode : kModes) {
      const auto found = ReadResult(PathOf({point, mode}));
      if (found) Keep({point, mode}, found->first, found->second);
    }
  }
}

void ExperimentResults::MakeDirectory() const {
  MakeDirectories(directory_ + "/points");
  WriteFileAtomically(directory_ + "/experiment.json", ExperimentAsJson(experiment_));
  WriteTable();
}

bool ExperimentResults::Has(size_t point, ExperimentMode mode) const {
  return results_.contains({point, mode});
}

bool ExperimentResults::HasAny(ExperimentMode mode) const {
  return std::any_of(results_.begin(), results_.end(),
                     [mode](const auto& result) { return result.first.mode == mode; });
}

const PointResult& ExperimentResults::Get(size_t point, ExperimentMode mode) const {
  return results_.at({point, mode}).result;
}

void ExperimentResults::Put(size_t point, ExperimentMode mode, const PointResult& result,
                            const Circumstances& circumstances) {
  const Row row{point, mode};
  const Circumstances deciding = Deciding(circumstances, points_[point], mode);
  WriteFileAtomically(PathOf(row), ToJson(result, deciding).dump(2) + "\n");
  Keep(row, result, deciding);
  WriteTable();
}

void ExperimentResults::RefuseOthers(ExperimentMode mode, const Circumstances& now) const {
  std::map<std::string, size_t> others;
  for (const auto& [row, kept] : results_) {
    if (row.mode != mode) continue;
    const std::string difference = DifferenceOf(kept.circumstances, now);
    if (!difference.empty()) ++others[difference];
  }
  if (others.empty()) return;
  const auto& [difference, count] = *others.begin();
  throw ConfigError(std::to_string(count) + " of the points in " + directory_ + " " +
                    (count == 1 ? "is" : "are") + " of " + difference +
                    "; give the same again, or name another --out");
}

std::map<std::string, size_t> ExperimentResults::Versions(ExperimentMode mode) const {
  std::map<std::string, size_t> versions;
  for (const auto& [row, kept] : results_) {
    const std::string& version = kept.circumstances.version;
    if (row.mode == mode && !version.empty()) ++versions[version];
  }
  return versions;
}

void ExperimentResults::Keep(const Row& row, const PointResult& result,
                             const Circumstances& circumstances) {
  results_[row] = {result, circumstances,
                   LineOf(experiment_, points_[row.point], row.mode, result)};
}

void ExperimentResults::WriteTable() const {
  std::string table = Heading();
  for (const auto& [row, kept] : results_) table += kept.line;
  // Without a sync: it can be made anew from the points, which are synced.
  WriteFileQuickly(directory_ + "/results.csv", table);
}

std::string ExperimentResults::PathOf(const Row& row) const {
  return directory_ + "/points/" + KeyOf(points_[row.point], row.mode) + ".json";
}

double SpeedupOf(const ExperimentPoint& point, const PointResult& result) {
  const Cluster& cluster = point.job.cluster();
  return cluster.workers() * cluster.devices_per_worker() * result.compute / result.iteration;
}

}  // namespace poseidon
