#include "client/front/session_options.h"

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "proto/job_config.h"
#include "proto/plan_members.h"

namespace poseidon {
namespace {

constexpr const char* kJobVariable = "POSEIDON_JOB";
constexpr const char* kRankVariable = "POSEIDON_RANK";
constexpr const char* kHostVariable = "POSEIDON_HOST";
constexpr const char* kIncarnationVariable = "POSEIDON_INCARNATION";
constexpr const char* kReplacesVariable = "POSEIDON_REPLACES";

std::string_view Variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value != nullptr && *value != '\0') return value;
  throw ConfigError(std::string(name) +
                    " is not set; start the program by `poseidon run --config=FILE -- PROGRAM`, or "
                    "give it a job and a rank itself (SessionOptions)");
}

template <typename Number>
Number NumberIn(std::string_view text, const char* name, const std::string& meaning) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, number);
  if (parsed.ec == std::errc() && parsed.ptr == end && number >= 0) return number;
  throw ConfigError(std::string(name) + " is \"" + std::string(text) + "\"; it must be " + meaning);
}

// 0 where it is not set.
uint64_t IncarnationIn(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr || *value == '\0') return 0;
  return NumberIn<uint64_t>(value, name, "the number of a process of the job");
}

}  // namespace

SessionOptions SessionOptions::FromEnvironment() {
  SessionOptions options;
  options.job = Variable(kJobVariable);
  options.trace_directory = std::filesystem::path(options.job).parent_path().string();
  options.rank = NumberIn<int>(Variable(kRankVariable), kRankVariable, "a worker's rank, from 0");
  if (const char* const host = std::getenv(kHostVariable)) options.host = host;
  options.incarnation = IncarnationIn(kIncarnationVariable);
  options.replaces = IncarnationIn(kReplacesVariable);
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
  if (options.goes_back && MayShrink(config.job.recovery())) {
    throw ConfigError(
        "recovery: a program of yours reads its data itself, so nobody can share them out anew "
        "among those that SHRINK leaves; use mode: REPLACE alone");
  }
  WorkerSessionOptions session;
  session.job = config.job;
  session.job_fingerprint = config.fingerprint;
  session.wanted_rank = options.rank;
  session.host = options.host;
  session.trace_directory = options.trace_directory;
  session.interrupted = options.interrupted;
  session.goes_back = options.goes_back;
  session.incarnation = options.incarnation;
  session.replaces = options.replaces;
  session.allocate = options.allocate;
  session.trains_locally = true;
  return session;
}

}  // namespace poseidon
