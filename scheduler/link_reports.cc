#include "scheduler/link_reports.h"

#include <algorithm>
#include <map>
#include <string>

#include "core/time.h"
#include "core/units.h"
#include "proto/cluster_rates.h"
#include "transport/address.h"
#include "transport/membership/member.h"

namespace poseidon {
namespace {

// The value that `share` of all values are below.
double Quantile(std::vector<double> values, double share) {
  const auto place =
      values.begin() + static_cast<std::ptrdiff_t>(share * static_cast<double>(values.size()));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

constexpr double kMedian = 0.5;
// Where an echo waits behind a burst the link seems slower than it is; few do.
constexpr double kUpperQuartile = 0.75;

}  // namespace

Network NetworkOf(const std::vector<wire::LinkReport>& reports, const Network& described) {
  std::vector<double> latencies;
  std::map<int, std::vector<double>> goodputs;  // by distance
  for (const wire::LinkReport& report : reports) {
    for (const wire::LinkMeasurement& link : report.links()) {
      latencies.push_back(link.latency_seconds());
      goodputs[link.distance()].push_back(link.goodput_bytes_per_second());
    }
  }
  Network network = described;
  network.set_goodput_share(1);  // what was measured is what gets through
  if (latencies.empty()) return network;
  double slowest = Quantile(goodputs.begin()->second, kUpperQuartile);
  for (const auto& [distance, values] : goodputs) {
    slowest = std::min(slowest, Quantile(values, kUpperQuartile));
  }
  constexpr double kBitsPerByte = 8;
  network.set_bandwidth(
      std::to_string(std::max<int64_t>(static_cast<int64_t>(slowest * kBitsPerByte), 1)) + "bps");
  constexpr double kNanoseconds = 1e9;
  // Small messages were sent and taken one at a time.
  const double cost = ToSeconds(ParseDuration(network.message_cost()));
  const double latency = std::max(Quantile(latencies, kMedian) - cost, 0.0);
  network.set_latency(std::to_string(static_cast<int64_t>(latency * kNanoseconds)) + "ns");
  return network;
}

bool IsPlausible(const wire::LinkReport& report, int workers) {
  // Beyond any network there is, and within what integers of nanoseconds hold; the rate is the most
  // that a job config may say.
  constexpr double kMostSeconds = 1e6;
  constexpr double kMostBytesPerSecond = static_cast<double>(kMostBitRate) / 8;
  return std::all_of(
      report.links().begin(), report.links().end(), [workers](const wire::LinkMeasurement& link) {
        // In this form NaN is refused, too.
        return link.distance() >= 1 && link.distance() < workers && link.latency_seconds() >= 0 &&
               link.latency_seconds() <= kMostSeconds && link.goodput_bytes_per_second() > 0 &&
               link.goodput_bytes_per_second() <= kMostBytesPerSecond;
      });
}

bool AreColocated(const wire::View& view) {
  std::map<NodeId, std::string> hosts;
  for (const wire::Node& node : view.nodes()) hosts[IdOf(node)] = node.host();
  return std::all_of(hosts.begin(), hosts.end(), [&](const auto& entry) {
    const auto& [id, host] = entry;
    if (id.role != Role::kServer) return true;
    const auto worker = hosts.find({Role::kWorker, id.rank});
    return worker == hosts.end() || worker->second == host;
  });
}

}  // namespace poseidon
