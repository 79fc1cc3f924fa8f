#include "cli/jobs/leave.h"

#include <gflags/gflags.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include "cli/input/flags.h"
#include "cli/input/input_file.h"
#include "core/net/host_address.h"
#include "core/program.h"
#include "core/steady_now.h"
#include "proto/job_config.h"
#include "transport/membership/leave_requester.h"
#include "transport/membership/node_setup.h"
#include "transport/zmq/zmq_runtime.h"

namespace poseidon {
namespace {

// A scheduler answers at once; one that another takes the place of, within seconds.
constexpr Duration kDeadline = Seconds(20);
constexpr Duration kSilence = Seconds(2);  // until it is said who is asked
constexpr Duration kTick = std::chrono::milliseconds(100);

void SetScheduler(const std::string& text, Cluster& cluster) {
  const auto address = HostAndPort::Parse(text);
  if (!address) {
    throw ConfigError("--scheduler is \"" + text + "\"; write HOST:PORT, such as node0:29000");
  }
  cluster.set_scheduler_host(address->host);
  cluster.set_scheduler_port(address->port);
}

// Nothing where --scheduler alone says which job is meant.
JobConfig ConfigFromFlags() {
  if (!FLAGS_config.empty()) return ReadJobConfig(CheckInputFile(FLAGS_config));
  if (!FLAGS_scheduler.empty()) return {};
  throw ConfigError("--config or --scheduler is missing; say which job the worker is to leave");
}

// With what the flags say of where the job's scheduler is, and of its key.
Job WithFlags(Job job) {
  if (!FLAGS_scheduler.empty()) SetScheduler(FLAGS_scheduler, *job.mutable_cluster());
  Security& security = *job.mutable_security();
  if (!FLAGS_key_file.empty()) {
    security.set_mode(Security::CURVE);
    security.clear_key();
    security.set_key_file(FLAGS_key_file);
  }
  const bool is_open = !security.has_key_file() && !security.has_key() && security.allow().empty();
  // Nobody but the scheduler need reach this process.
  if (is_open) security.add_allow(ResolveHost(job.cluster().scheduler_host(), "the scheduler"));
  return job;
}

wire::End Await(ZmqRuntime& runtime, const Job& job, Interruption& interruption) {
  const Time begin = SteadyNow();
  bool is_said = false;
  while (true) {
    if (interruption.Pending()) throw Interrupted();
    if (!is_said && SteadyNow() - begin > kSilence) {
      is_said = true;
      std::cerr << WhomLeaveAsks(job, FLAGS_scheduler.empty() ? FLAGS_config : "") << std::endl;
    }
    const std::optional<Envelope> envelope = runtime.mailbox().Take(kTick);
    if (!envelope) continue;
    if (envelope->kind != MessageKind::kEnd && envelope->kind != MessageKind::kFailed) continue;
    wire::End end;
    end.ParseFromString(envelope->body.ToString());
    return end;
  }
}

}  // namespace

std::string WhomLeaveAsks(const Job& job, const std::string& config) {
  const HostAndPort scheduler{job.cluster().scheduler_host(), job.cluster().scheduler_port()};
  const std::string text = "asking the scheduler at " + scheduler.ToString() + " for up to " +
                           std::to_string(static_cast<int>(ToSeconds(kDeadline))) + " s";
  const std::string as_run = "out/" + job.name() + "/job.prototxt";
  std::error_code none;
  const bool is_meant = !config.empty() && !job.has_run() && std::filesystem::exists(as_run, none);
  return is_meant ? text + "; of a job of `poseidon run`, give --config=" + as_run : text;
}

ExitCode LeaveVerb() {
  if (FLAGS_worker < 0)
    throw ConfigError("--worker is missing; say which rank is to leave, from 0");
  const JobConfig config = ConfigFromFlags();
  const Job job = WithFlags(config.job);
  Interruption interruption;
  const std::string host = FindPublicHost(job.cluster().scheduler_host());
  ZmqRuntime runtime({Role::kWorker, -1}, NodeZmqOptions(job, host));
  wire::LeaveRequest request;
  request.set_worker(FLAGS_worker);
  // Whoever gives an address means the job that is there.
  if (FLAGS_scheduler.empty()) {
    request.set_job_fingerprint(config.fingerprint);
    *request.mutable_job() = WithoutKey(config.job);
  }
  request.mutable_from()->set_role(static_cast<uint32_t>(Role::kWorker));
  request.mutable_from()->set_host(host);
  request.mutable_from()->set_pid(getpid());
  for (const std::string& endpoint : runtime.endpoints()) {
    request.mutable_from()->add_endpoints(endpoint);
  }
  runtime.Attach(
      kControlLane,
      std::make_unique<LeaveRequester>(
          std::move(request), SchedulerAddress(job.cluster()).Endpoint(kControlLane), kDeadline));
  runtime.Start();
  const wire::End end = Await(runtime, job, interruption);
  runtime.Stop();
  if (end.exit_code() != 0) throw Error(static_cast<ExitCode>(end.exit_code()), end.reason());
  std::cout << end.reason() << std::endl;
  return ExitCode::kSuccess;
}

}  // namespace poseidon
