#include "scheduler/report/job_traffic.h"

#include "proto/plan_members.h"
#include "transport/address.h"

namespace poseidon {
namespace {

bool IsServer(const wire::PeerTraffic& peer) {
  return peer.role() == static_cast<uint32_t>(Role::kServer) && peer.rank() >= 0;
}

// What one worker says of the plan's buckets, under all plans of its layout together.
std::vector<wire::BucketTraffic> TrafficOf(const wire::WorkerReport& report, const Plan& plan,
                                           const PlanLayouts& layouts) {
  std::vector<wire::BucketTraffic> buckets(plan.buckets_size());
  std::map<int, size_t> next;  // bucket, by plan
  for (const wire::BucketTraffic& traffic : report.buckets()) {
    const auto layout = layouts.find(traffic.plan());
    if (layout == layouts.end() || layout->second != plan.layout()) continue;
    const size_t bucket = next[traffic.plan()]++;
    if (bucket >= buckets.size()) continue;
    wire::BucketTraffic& sum = buckets[bucket];
    sum.set_bytes_sent(sum.bytes_sent() + traffic.bytes_sent());
    sum.set_bytes_received(sum.bytes_received() + traffic.bytes_received());
    sum.set_exchange_seconds(sum.exchange_seconds() + traffic.exchange_seconds());
    sum.set_exchanges(sum.exchanges() + traffic.exchanges());
  }
  return buckets;
}

}  // namespace

std::vector<BucketSums> SumBuckets(const Plan& plan, const PlanLayouts& layouts,
                                   const WorkerReports& reports) {
  std::vector<BucketSums> buckets(plan.buckets_size());
  for (const auto& [rank, report] : reports) {
    size_t next = 0;
    for (const wire::BucketTraffic& traffic : TrafficOf(report, plan, layouts)) {
      BucketSums& sums = buckets[next++];
      sums.bytes_sent += traffic.bytes_sent();
      sums.bytes_received += traffic.bytes_received();
      if (traffic.exchanges() == 0) continue;
      sums.milliseconds +=
          1000 * traffic.exchange_seconds() / static_cast<double>(traffic.exchanges());
      ++sums.measured_workers;
    }
  }
  for (BucketSums& bucket : buckets) {
    if (bucket.measured_workers > 0) bucket.milliseconds /= bucket.measured_workers;
  }
  return buckets;
}

std::vector<wire::PeerTraffic> SumServers(const Plan& plan, const WorkerReports& reports) {
  if (plan.servers() == 0) return {};
  // By rank, of which some may have been lost.
  std::vector<wire::PeerTraffic> servers(1 + RankOfServer(plan, plan.servers() - 1));
  for (const auto& [rank, report] : reports) {
    for (const wire::PeerTraffic& peer : report.peers()) {
      if (!IsServer(peer) || peer.rank() >= static_cast<int>(servers.size())) continue;
      wire::PeerTraffic& server = servers[peer.rank()];
      server.set_bytes_received(server.bytes_received() + peer.bytes_sent());
      server.set_bytes_sent(server.bytes_sent() + peer.bytes_received());
    }
  }
  return servers;
}

WorkerBytes BytesOf(const wire::WorkerReport& report) {
  WorkerBytes bytes;
  for (const wire::PeerTraffic& peer : report.peers()) {
    bytes.all.set_bytes_sent(bytes.all.bytes_sent() + peer.bytes_sent());
    bytes.all.set_bytes_received(bytes.all.bytes_received() + peer.bytes_received());
    if (IsServer(peer) && peer.rank() == report.rank()) bytes.own_server = peer;
  }
  return bytes;
}

}  // namespace poseidon
