#include "proto/job_config.h"

#include <xxhash.h>

#include <filesystem>

#include "core/error.h"
#include "core/named_file.h"
#include "proto/job_check.h"
#include "proto/text_format.h"

namespace poseidon {

namespace fs = std::filesystem;

namespace {

// Keys are compared by who may connect.
uint64_t FingerprintOf(const Job& job) {
  const std::string text = WithoutKey(job).ShortDebugString();
  return XXH3_64bits(text.data(), text.size());
}

// Checks a config that has been read and fills in the rest.
void Complete(const TextLocations& locations, JobConfig& config) {
  CheckName(config.job, locations);
  CheckClusterAndCommunication(config.job, locations);
  CheckTraining(config.job, locations);
  CheckMonitor(config.job, locations);
  config.training = locations.Find(config.job, "training");
  const bool has_key_file = config.job.security().has_key_file();
  if (has_key_file || config.job.security().has_key()) {
    config.job.mutable_security()->set_mode(Security::CURVE);
  }
  config.fingerprint = FingerprintOf(config.job);
  if (!has_key_file) return;
  Security& security = *config.job.mutable_security();
  // Who only plans needs no key.
  const auto found = FindNamedFile(config.path, security.key_file());
  security.set_key_file(fs::absolute(found.value_or(security.key_file())).string());
}

}  // namespace

Job WithoutKey(Job job) {
  if (job.has_security()) {
    job.mutable_security()->clear_key_file();
    job.mutable_security()->clear_key();
  }
  return job;
}

JobConfig ReadJobConfig(const std::string& path, const std::function<void(Job&)>& change) {
  if (path.empty()) throw ConfigError("--config is missing; name a job config");
  JobConfig config;
  config.path = path;
  const TextLocations locations = ReadTextFile(path, config.job);
  if (change) change(config.job);
  Complete(locations, config);
  return config;
}

JobConfig ParseJobConfig(const std::string& text, const std::string& name) {
  JobConfig config;
  config.path = name;
  Complete(ParseText(text, name, config.job), config);
  return config;
}

void CheckClusterAndCommunication(const Job& job) {
  CheckClusterAndCommunication(job, TextLocations());
}

bool MeasuresLinks(const Job& job) {
  return job.communication().policy() == Communication::TIME && !job.cluster().has_network() &&
         job.cluster().workers() > 1;
}

std::vector<int> MeasuredDistances(const Job& job) {
  if (!MeasuresLinks(job)) return {};
  const bool all = job.cluster().link_probe() == Cluster::EVERY_PAIR;
  std::vector<int> distances;
  for (int distance = 1; distance < job.cluster().workers(); distance += all ? 1 : distance) {
    distances.push_back(distance);
  }
  return distances;
}

std::string ResolvePath(const std::string& named_in, const std::string& path,
                        const std::string& field) {
  if (fs::path(path).is_absolute()) return path;
  if (const auto found = FindNamedFile(named_in, path)) return *found;
  const std::string beside = (fs::path(named_in).parent_path() / path).string();
  std::error_code unknown;
  // Its path, since it may be that of another machine.
  throw ConfigError(named_in + ": " + (field.empty() ? "" : field + ": ") + "there is no file " +
                    path + " in the working directory, " + fs::current_path(unknown).string() +
                    (beside == path ? "" : ", nor " + beside) +
                    ", nor in a directory above that file's");
}

std::string SolverPath(const JobConfig& config) {
  if (config.job.training().solver().empty()) {
    throw ConfigError(config.training,
                      "training.solver is missing; name a Caffe solver prototxt, or set engine: "
                      "REPLAY and a replay");
  }
  return ResolvePath(config, config.job.training().solver(), "training.solver");
}

std::string ResolvePath(const JobConfig& config, const std::string& path,
                        const std::string& field) {
  return ResolvePath(config.path, path, field);
}

}  // namespace poseidon
