// From a job config to the options of a node's runtime and membership: what the daemons and the
// client library share.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "proto/job.pb.h"
#include "transport/membership/heartbeat.h"
#include "transport/membership/member.h"
#include "transport/zmq/zmq_runtime.h"

namespace poseidon {

// The address of this machine that others can reach: that of the interface which leads to the
// scheduler. Throws ConfigError if `scheduler_host` can't be resolved.
std::string FindPublicHost(const std::string& scheduler_host);

// MemberOptions::scheduler_deadline.
std::optional<Duration> SchedulerDeadline(const Job& job);

HeartbeatTiming TimingOf(const Job& job);

// How long a node waits for others that are alive before the job ends: stall_deadline_seconds for
// each local step from one exchange to the next, as workers that train on their own drift apart by
// some of each step's time.
Duration StallDeadline(const Job& job);

// How long all workers together may take to pause for another plan.
Duration PauseDeadline(const Job& job);

// A server's or worker's: free ports, reachable at `public_host`, of which others are told the
// address: resolved once, as the scheduler's is. The scheduler changes ports and lanes. A node at a
// loopback address listens there alone. Throws ConfigError for a key that can't be read, and where
// other machines reach the node and job.security neither has a key nor says who may connect.
ZmqOptions NodeZmqOptions(const Job& job, const std::string& public_host);

// That may ever take part in the job at a time: also those that join it, and spares.
int MostNodes(const Job& job);

// What a node of a job with so many nodes and data lanes opens at most, in files and sockets.
int64_t OpenFilesOf(int nodes, int data_lanes);

// Lets this process open as many as that for a node of the job: the usual limit, 1024, is enough
// for some hundred nodes. Where the system has fewer for it the log says so, as the plan may use
// fewer lanes, and connect fewer nodes with each other.
void ClaimFilesOf(const Job& job, int data_lanes);
// The same for the scheduler, which is connected with all. Throws Error where the system has fewer.
void ClaimSchedulersFiles(const Job& job);

// Returns when cluster.scheduler_host can be resolved: DNS, and networks of containers, may know a
// name only from when its owner runs, and a node may be started first. Says what it waits for.
// Throws ConfigError as ResolveHost after cluster.join_deadline_seconds, and what `interrupted`
// throws, which is called between tries.
void AwaitSchedulerName(const Cluster& cluster, const std::function<void()>& interrupted);

// Draws an incarnation at random, resolves cluster.scheduler_host, and logs whom the node will ask.
// `runtime` is bound; nothing is sent yet. Throws ConfigError if `wanted_rank` is below -1 or the
// host can't be resolved.
MemberOptions NodeMemberOptions(const Job& job, uint64_t job_fingerprint, Role role,
                                int wanted_rank, const std::string& public_host,
                                const ZmqRuntime& runtime);

// A random number that is not 0.
uint64_t DrawRandom();

}  // namespace poseidon
