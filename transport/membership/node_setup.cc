#include "transport/membership/node_setup.h"

#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <random>
#include <thread>

#include "core/error.h"
#include "core/net/host_address.h"
#include "core/net/ip_networks.h"
#include "core/process/allowance.h"
#include "core/process/build_identity.h"
#include "core/process/resource_limits.h"
#include "core/steady_now.h"
#include "proto/job_config.h"
#include "proto/lanes.h"

namespace poseidon {
namespace {

// Stall deadlines: the latest worker has three iterations before it when they agree, and worker 0
// then fetches the optimizer state.
constexpr int kDeadlinesToPause = 4;

// Of a lane, where timelines are drawn of them: as long as the traces themselves reach back, and
// four megabytes.
constexpr int kTracedEvents = 65536;

// From one try to find the scheduler's name to the next.
constexpr Duration kNamePause = Seconds(1);

void SetSecurity(const Security& security, ZmqOptions& options) {
  options.allowed.assign(security.allow().begin(), security.allow().end());
  if (security.has_key_file()) options.key = JobKey::Read(security.key_file());
  if (security.has_key()) options.key = JobKey::Parse(security.key());
  if (options.key || !options.allowed.empty() || IsLoopbackName(options.public_host)) return;
  throw ConfigError(
      "other machines reach this node at " + options.public_host +
      ", and the job config has no `security`, so that anybody there could take part in the job; "
      "make a key with `poseidon keys --out=DIR`, copy it to all machines of the job and write "
      "`security { key_file: \"DIR/job.key\" }`, or, on a network that you trust, say which "
      "addresses may connect: `security { mode: NONE allow: \"10.0.0.0/8\" }` (docs/security.md)");
}

// With each other node, in each lane: a connection to it, one from it, and what wakes the thread
// that sends.
constexpr int64_t kFilesOfLane = 3;
constexpr int64_t kSchedulersLanes = 2;

// The address of the name by which others are to reach this node.
std::string ResolveOwnHost(const std::string& host) {
  try {
    return ResolveHost(host);
  } catch (const ConfigError& error) {
    throw ConfigError(std::string(error.what()) + "; the other nodes are to reach this one there");
  }
}

}  // namespace

std::string FindPublicHost(const std::string& scheduler_host) {
  const auto own = OwnAddressTowards(ResolveHost(scheduler_host, kSchedulerHostField));
  if (own) return *own;
  throw ConfigError("no route to cluster.scheduler_host \"" + scheduler_host +
                    "\"; is the network up?");
}

Duration StallDeadline(const Job& job) {
  constexpr double longest = 1e8;  // three years; much more has no nanoseconds
  const Communication& communication = job.communication();
  const int fragments = communication.fragments();
  const int steps = (communication.local_steps() + fragments - 1) / fragments;
  return Seconds(std::min(longest, communication.stall_deadline_seconds() * steps));
}

Duration PauseDeadline(const Job& job) { return kDeadlinesToPause * StallDeadline(job); }

HeartbeatTiming TimingOf(const Job& job) {
  return {Seconds(job.communication().heartbeat_interval_seconds()),
          Seconds(job.communication().heartbeat_deadline_seconds())};
}

std::optional<Duration> SchedulerDeadline(const Job& job) {
  if (job.recovery().mode() == Recovery::NONE) return std::nullopt;
  return Seconds(job.recovery().scheduler_deadline_seconds());
}

ZmqOptions NodeZmqOptions(const Job& job, const std::string& public_host) {
  ZmqOptions options;
  options.public_host = public_host;
  const std::string address = ResolveOwnHost(public_host);
  options.ipv6 = IsIpv6Address(address);
  if (IsLoopbackName(public_host)) options.bind_host = address;
  SetSecurity(job.security(), options);
  // A name that is loopback here only may be another address elsewhere.
  if (IsLoopbackName(public_host) || !IsLoopbackName(address)) options.public_host = address;
  options.data_lanes = OfferedLanes(job, UsableCores());
  options.times_actors = job.monitor().has_node_port();
  options.window_bytes = job.communication().window_bytes();
  // Through as long a failure of the network as a job may outlive.
  options.silent_connection +=
      TimingOf(job).deadline + SchedulerDeadline(job).value_or(Duration::zero());
  if (job.training().trace()) options.kept_events = kTracedEvents;
  // So that who has heard of a death also ends within the deadline (HeartbeatTiming).
  options.linger = std::min(options.linger, TimingOf(job).interval);
  return options;
}

int MostNodes(const Job& job) {
  const int workers = std::max(job.cluster().workers(), job.elastic().max_workers());
  return workers + job.cluster().servers() + job.recovery().spare_workers() +
         job.recovery().spare_servers();
}

int64_t OpenFilesOf(int nodes, int data_lanes) {
  constexpr int64_t kOwn = 128;  // libraries, logs, data
  // As above, and two until it is connected, by which it hears that.
  constexpr int64_t kDataLane = kFilesOfLane + 2;
  return kOwn + std::max(kDataLane * data_lanes, kSchedulersLanes * kFilesOfLane) * nodes;
}

void ClaimFilesOf(const Job& job, int data_lanes) {
  const auto needed = static_cast<uint64_t>(OpenFilesOf(MostNodes(job), data_lanes));
  const auto shortage = ClaimOpenFiles(needed, "a node of this job may need");
  if (shortage) LOG(WARNING) << *shortage;
}

void ClaimSchedulersFiles(const Job& job) {
  const auto claim = [](int nodes) {
    constexpr int64_t kOwn = 64;  // its log, its journal, and who looks at its monitor
    const int64_t needed = kOwn + kSchedulersLanes * kFilesOfLane * nodes;
    return ClaimOpenFiles(static_cast<uint64_t>(needed), "the scheduler of this job needs");
  };
  claim(MostNodes(job));  // nobody can tell whether all of these will come
  const auto shortage = claim(job.cluster().workers() + job.cluster().servers());
  if (shortage) throw Error(ExitCode::kFailure, *shortage);
}

void AwaitSchedulerName(const Cluster& cluster, const std::function<void()>& interrupted) {
  const Time deadline = SteadyNow() + Seconds(cluster.join_deadline_seconds());
  for (bool said = false;; said = true) {
    try {
      ResolveHost(cluster.scheduler_host(), kSchedulerHostField);
      return;
    } catch (const ConfigError& error) {
      if (SteadyNow() >= deadline) throw;
      if (!said) {
        LOG(WARNING) << error.what()
                     << "; it may have that name only when it is started: trying for "
                     << cluster.join_deadline_seconds() << " s";
      }
    }
    interrupted();
    std::this_thread::sleep_for(kNamePause);
  }
}

MemberOptions NodeMemberOptions(const Job& job, uint64_t job_fingerprint, Role role,
                                int wanted_rank, const std::string& public_host,
                                const ZmqRuntime& runtime) {
  if (wanted_rank < -1) {
    throw ConfigError("--rank is " + std::to_string(wanted_rank) + "; ranks count from 0");
  }
  MemberOptions options;
  options.role = role;
  options.wanted_rank = wanted_rank;
  options.host = public_host;
  options.pid = getpid();
  options.endpoints = runtime.endpoints();
  const Cluster& cluster = job.cluster();
  options.scheduler =
      "tcp://" + HostAndPort{cluster.scheduler_host(), cluster.scheduler_port()}.ToString();
  options.scheduler_address = std::make_shared<SchedulerAddress>(cluster);
  options.scheduler_control_endpoint = options.scheduler_address->Endpoint(kControlLane);
  options.scheduler_heartbeat_endpoint = options.scheduler_address->Endpoint(kHeartbeatLane);
  options.incarnation = DrawRandom();
  options.job_fingerprint = job_fingerprint;
  options.job = std::make_shared<const Job>(WithoutKey(job));
  options.build = BuildIdentity();
  options.join_deadline = Seconds(job.cluster().join_deadline_seconds());
  options.heartbeat = TimingOf(job);
  options.scheduler_deadline = SchedulerDeadline(job);
  LOG(INFO) << "asking the scheduler at " << options.scheduler << " to join; it reaches this "
            << RoleName(role) << " at " << public_host;
  return options;
}

uint64_t DrawRandom() {
  std::random_device device;
  const uint64_t drawn = (static_cast<uint64_t>(device()) << 32) | device();
  return drawn == 0 ? 1 : drawn;
}

}  // namespace poseidon
