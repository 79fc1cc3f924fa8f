#include "launch/handed_key.h"

#include <filesystem>

#include "transport/security/job_key.h"

namespace poseidon {

Job WithKeyInside(Job job) {
  if (!job.security().has_key_file()) return job;
  Security& security = *job.mutable_security();
  security.set_key(JobKey::Read(security.key_file()).ToText());
  security.clear_key_file();
  return job;
}

void MakeKeyIfOpen(Job& job, const std::string& directory) {
  if (job.has_security()) return;
  const std::filesystem::path path = std::filesystem::absolute(directory) / "job.key";
  std::filesystem::remove(path);
  JobKey::Make().Write(path);
  job.mutable_security()->set_mode(Security::CURVE);
  job.mutable_security()->set_key_file(path);
}

}  // namespace poseidon
