#include "launch/handed_key.h"

#include <filesystem>

#include "core/error.h"
#include "transport/security/job_key.h"

namespace poseidon {
namespace {

// Names of their own: a job.key there is of `poseidon keys`, and its user's.
constexpr const char* kMadeKey = "run.key";
constexpr const char* kMovedKey = "config.key";

std::string PathIn(const std::string& directory, const char* name) {
  return std::filesystem::absolute(directory) / name;
}

bool HasKey(const std::string& path, const JobKey& key) {
  try {
    return JobKey::Read(path).secret_key == key.secret_key;
  } catch (const ConfigError&) {
    return false;
  }
}

void NameKeyFile(const std::string& path, Job& job) {
  Security& security = *job.mutable_security();
  security.set_mode(Security::CURVE);
  security.clear_key();
  security.set_key_file(path);
}

}  // namespace

Job WithKeyInside(Job job) {
  if (!job.security().has_key_file()) return job;
  Security& security = *job.mutable_security();
  security.set_key(JobKey::Read(security.key_file()).ToText());
  security.clear_key_file();
  return job;
}

std::string MadeKeyFile(const std::string& directory) { return PathIn(directory, kMadeKey); }

void MakeKeyIfOpen(Job& job, const std::string& directory) {
  if (job.has_security()) return;
  const std::string path = MadeKeyFile(directory);
  std::filesystem::remove(path);
  JobKey::Make().Write(path);
  NameKeyFile(path, job);
}

void MoveKeyToFile(Job& job, const std::string& directory, bool alone) {
  if (!job.security().has_key()) return;
  const JobKey key = JobKey::Parse(job.security().key());
  const std::string path = PathIn(directory, kMovedKey);
  if (!HasKey(path, key)) {
    if (alone) std::filesystem::remove(path);
    key.Write(path);
  }
  NameKeyFile(path, job);
}

}  // namespace poseidon
