#include "client/front/session_options.h"

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "proto/job_config.h"

namespace poseidon {
namespace {

constexpr const char* kJobVariable = "POSEIDON_JOB";
constexpr const char* kRankVariable = "POSEIDON_RANK";

std::string_view Variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value != nullptr && *value != '\0') return value;
  throw ConfigError(std::string(name) +
                    " is not set; start the program by `poseidon run --config=FILE -- PROGRAM`, or "
                    "give it a job and a rank itself (SessionOptions)");
}

}  // namespace

SessionOptions SessionOptions::FromEnvironment() {
  SessionOptions options;
  options.job = Variable(kJobVariable);
  options.trace_directory = std::filesystem::path(options.job).parent_path().string();
  const std::string_view rank = Variable(kRankVariable);
  const char* const end = rank.data() + rank.size();
  const auto parsed = std::from_chars(rank.data(), end, options.rank);
  if (parsed.ec != std::errc() || parsed.ptr != end || options.rank < 0) {
    throw ConfigError(std::string(kRankVariable) + " is \"" + std::string(rank) +
                      "\"; it must be a worker's rank, from 0");
  }
  return options;
}

WorkerSessionOptions ToWorkerSessionOptions(const SessionOptions& options) {
  if (options.job.empty() == options.job_text.empty()) {
    throw ConfigError(
        "SessionOptions needs either the path of a job config, in `job`, or its text, "
        "in `job_text`");
  }
  const JobConfig config = options.job.empty() ? ParseJobConfig(options.job_text, "job_text")
                                               : ReadJobConfig(options.job);
  WorkerSessionOptions session;
  session.job = config.job;
  session.job_fingerprint = config.fingerprint;
  session.wanted_rank = options.rank;
  session.host = options.host;
  session.trace_directory = options.trace_directory;
  session.interrupted = options.interrupted;
  session.trains_locally = true;
  return session;
}

}  // namespace poseidon
