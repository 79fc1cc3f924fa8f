#include "launch/handed_key.h"

#include <filesystem>

#include "transport/security/job_key.h"

namespace poseidon {
namespace {

void KeepKeyIn(const std::string& directory, const JobKey& key, Job& job) {
  const std::filesystem::path path = std::filesystem::absolute(directory) / "job.key";
  std::filesystem::remove(path);
  key.Write(path);
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

void MakeKeyIfOpen(Job& job, const std::string& directory) {
  if (!job.has_security()) KeepKeyIn(directory, JobKey::Make(), job);
}

void MoveKeyToFile(Job& job, const std::string& directory) {
  if (!job.security().has_key()) return;
  const JobKey key = JobKey::Parse(job.security().key());
  KeepKeyIn(directory, key, job);
}

}  // namespace poseidon
