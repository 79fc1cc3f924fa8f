#include "cli/doctor/network_checks.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "core/text/format.h"
#include "core/units.h"
#include "planner/cost/information_book.h"
#include "proto/bucket.h"
#include "proto/lanes.h"
#include "simulation/plan_trial.h"

namespace poseidon {
namespace {

constexpr const char* kPorts = "ports";
constexpr const char* kLinks = "links";
constexpr const char* kPlan = "plan";

// A link is called worse than claimed if it has less than this share of the goodput, or so many
// times the latency and more than threads take to be woken.
constexpr double kShare = 0.8;
constexpr double kTimes = 2;
constexpr double kWakingSeconds = 50e-6;
// Predictions that differ by less are alike: the planner's own error is about as large.
constexpr double kPlanDifference = 0.1;

// A line for each link is read as long as there are no more: all of 8 hosts'.
constexpr size_t kMostLines = 56;
// Of more links so many that are worse than claimed get a line.
constexpr size_t kMostWorse = 10;

constexpr double kBitsPerByte = 8;

// Of those that a job needs; a scheduler for which the config names no port gets a PortPair.
std::string HowToOpenPorts(const Cluster& cluster) {
  std::string own = "20000 to 32000";
  if (cluster.has_scheduler_port()) {
    own = std::to_string(cluster.scheduler_port()) + " and " +
          std::to_string(cluster.scheduler_port() + 1);
  }
  return "let the hosts reach ports " + own +
         " of this machine, and each other and this machine ports 32768 to 60999 of the hosts "
         "(docs/running.md, \"Ports and firewalls\")";
}

std::string RateText(double bytes_per_second) {
  constexpr double kGiga = 1e9;
  constexpr double kMega = 1e6;
  const double bits = kBitsPerByte * bytes_per_second;
  return bits >= kGiga ? Format("%.2f Gb/s", bits / kGiga) : Format("%.1f Mb/s", bits / kMega);
}

std::string LatencyText(double seconds) {
  constexpr double kMilliseconds = 1000;
  return Format("%.3f ms", kMilliseconds * seconds);
}

double GoodputOf(const Network& network) {
  return network.goodput_share() * static_cast<double>(ParseBitRate(network.bandwidth())) /
         kBitsPerByte;
}

double LatencyOf(const Network& network) { return ToSeconds(ParseDuration(network.latency())); }

std::string ClaimText(const std::optional<Network>& claimed) {
  if (!claimed) return "";
  return "; the config says " + LatencyText(LatencyOf(*claimed)) + ", " +
         RateText(GoodputOf(*claimed));
}

bool IsWorse(const HostLink& link, const std::optional<Network>& claimed) {
  const double goodput = link.goodput_bytes_per_second;
  const double latency = link.latency_seconds;
  if (goodput <= 0) return true;
  if (!claimed) return false;
  return goodput < kShare * GoodputOf(*claimed) ||
         (latency > kTimes * LatencyOf(*claimed) && latency > kWakingSeconds);
}

// How many times worse it is than claimed, in what it is worst in; where nothing is claimed, a link
// that is worse has carried nothing.
double Badness(const HostLink& link, const std::optional<Network>& claimed) {
  if (!claimed || link.goodput_bytes_per_second <= 0) {
    return std::numeric_limits<double>::infinity();
  }
  return std::max(GoodputOf(*claimed) / link.goodput_bytes_per_second,
                  link.latency_seconds / std::max(LatencyOf(*claimed), kWakingSeconds));
}

Finding WarningOf(std::string text) {
  return {FindingLevel::kWarning, kLinks, std::move(text),
          "look at the link and its switch (ethtool, iperf3), or let the config say what it does "
          "(cluster.network)"};
}

Finding FindingOf(const HostLink& link, const std::optional<Network>& claimed) {
  const double goodput = link.goodput_bytes_per_second;
  std::string text = link.from + " to " + link.to + ": " + LatencyText(link.latency_seconds) +
                     ", " + (goodput > 0 ? RateText(goodput) : "no burst has arrived") +
                     ClaimText(claimed);
  if (IsWorse(link, claimed)) return WarningOf(std::move(text));
  return {FindingLevel::kGood, kLinks, std::move(text)};
}

// "0.050 ms to 0.093 ms, 9.20 Gb/s to 9.41 Gb/s". Not of none.
std::string RangesText(const std::vector<HostLink>& links) {
  const auto [nearest, farthest] = std::minmax_element(
      links.begin(), links.end(),
      [](const HostLink& a, const HostLink& b) { return a.latency_seconds < b.latency_seconds; });
  const auto [slowest, fastest] =
      std::minmax_element(links.begin(), links.end(), [](const HostLink& a, const HostLink& b) {
        return a.goodput_bytes_per_second < b.goodput_bytes_per_second;
      });
  return LatencyText(nearest->latency_seconds) + " to " + LatencyText(farthest->latency_seconds) +
         ", " + RateText(slowest->goodput_bytes_per_second) + " to " +
         RateText(fastest->goodput_bytes_per_second);
}

// Of many links: what a reader can act on.
Findings CheckMany(const std::vector<HostLink>& links, const std::optional<Network>& claimed) {
  std::vector<HostLink> worse = links;
  const auto good = std::stable_partition(
      worse.begin(), worse.end(), [&](const HostLink& link) { return IsWorse(link, claimed); });
  const std::vector<HostLink> others(good, worse.end());
  worse.erase(good, worse.end());
  Findings findings;
  if (!others.empty()) {
    findings.push_back({FindingLevel::kGood, kLinks,
                        std::to_string(others.size()) + " of " + std::to_string(links.size()) +
                            " links: " + RangesText(others) + ClaimText(claimed)});
  }
  std::stable_sort(worse.begin(), worse.end(), [&](const HostLink& a, const HostLink& b) {
    return Badness(a, claimed) > Badness(b, claimed);
  });
  const size_t shown = std::min(worse.size(), kMostWorse);
  for (size_t i = 0; i < shown; ++i) findings.push_back(FindingOf(worse[i], claimed));
  worse.erase(worse.begin(), worse.begin() + static_cast<std::ptrdiff_t>(shown));
  if (!worse.empty()) {
    findings.push_back(WarningOf(std::to_string(worse.size()) +
                                 " more links: " + RangesText(worse) + ClaimText(claimed)));
  }
  return findings;
}

// "4 PS, 2 SFB".
std::string SchemesText(const Plan& plan) {
  std::map<Scheme, int> buckets;
  for (const BucketPlan& bucket : plan.buckets()) ++buckets[bucket.scheme()];
  std::string text;
  for (const auto& [scheme, count] : buckets) {
    text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + SchemeName(scheme);
  }
  return text;
}

bool SameSchemes(const Plan& a, const Plan& b) {
  if (a.buckets_size() != b.buckets_size()) return false;
  for (int i = 0; i < a.buckets_size(); ++i) {
    if (a.buckets(i).scheme() != b.buckets(i).scheme() ||
        a.buckets(i).layer_count() != b.buckets(i).layer_count()) {
      return false;
    }
  }
  return true;
}

// Of a measurement: what nobody would write down is rounded away.
int64_t ThreeDigits(int64_t amount) {
  constexpr int64_t kFourDigits = 1000;
  int64_t unit = 1;
  while (amount / unit >= kFourDigits) unit *= 10;
  return (amount + unit / 2) / unit * unit;
}

// With all else that the config says of its network.
std::string ToWriteDown(const Network& measured) {
  const Duration latency(ThreeDigits(ParseDuration(measured.latency()).count()));
  Network network = measured;
  network.set_bandwidth(FormatBitRate(ThreeDigits(ParseBitRate(measured.bandwidth()))));
  network.set_goodput_share(1);
  network.set_latency(FormatDuration(latency));
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string fields;  // with a space behind the last one
  printer.PrintToString(network, &fields);
  return "network { " + fields + "}";
}

Plan PlanWith(Job job, const ModelSpec& model, const Network& network) {
  // The lanes that the job would have: of a network that it does not describe it plans none.
  if (!PlansLanes(job)) job.mutable_communication()->set_lanes(job.communication().lanes());
  *job.mutable_cluster()->mutable_network() = network;
  return PlanByTrial(InformationBook(model, job.cluster()), job);
}

std::string PlanText(const Plan& plan) {
  return Format("%.2f ms an iteration", ExpectedIterationMs(plan)) + " (" + SchemesText(plan) + ")";
}

}  // namespace

std::vector<HostLink> LinksBetween(const std::vector<wire::LinkReport>& reports,
                                   const std::vector<std::string>& names) {
  std::vector<HostLink> links;
  for (const wire::LinkReport& report : reports) {
    for (const wire::LinkMeasurement& link : report.links()) {
      const auto from = static_cast<size_t>(report.rank());
      const size_t to = (from + static_cast<size_t>(link.distance())) % names.size();
      links.push_back(
          {names.at(from), names.at(to), link.latency_seconds(), link.goodput_bytes_per_second()});
    }
  }
  return links;
}

Findings CheckPorts(const Cluster& cluster, bool taken, const LinkMeasurements& measured) {
  const std::string& failure = measured.failure;
  Findings findings;
  const std::string port = "port " + std::to_string(cluster.scheduler_port()) + " of this machine";
  if (taken) {
    findings.push_back({FindingLevel::kWarning, kPorts,
                        port +
                            ", the scheduler's, or the next one is taken, as by the job itself "
                            "while it runs" +
                            (failure.empty() ? "; links are measured at another one" : ""),
                        "end what listens there, unless it is this job"});
  }
  if (failure.empty()) {
    findings.push_back(
        {FindingLevel::kGood, kPorts,
         "daemons on all hosts reach each other and the scheduler at " + cluster.scheduler_host()});
  } else if (!measured.is_silence) {
    findings.push_back({FindingLevel::kError, kPorts,
                        "daemons on the hosts could not run: " + failure, "as it says"});
  } else if (taken) {
    // What is open for the job need not be so for other ports.
    findings.push_back({FindingLevel::kWarning, kLinks,
                        "have not been measured: daemons on the hosts could not meet at another "
                        "port: " +
                            failure,
                        "look again when nothing listens at " + port + " and the next one"});
  } else {
    findings.push_back({FindingLevel::kError, kPorts,
                        "daemons on the hosts could not meet: " + failure,
                        HowToOpenPorts(cluster)});
  }
  return findings;
}

Findings CheckLinks(const std::vector<HostLink>& links, const std::optional<Network>& claimed) {
  if (links.size() > kMostLines) return CheckMany(links, claimed);
  Findings findings;
  for (const HostLink& link : links) findings.push_back(FindingOf(link, claimed));
  return findings;
}

Findings ComparePlans(const Job& job, const ModelSpec& model, const Network& measured) {
  // A measured link does not tell which tiers it crosses.
  if (job.cluster().network().tier_size() > 0) {
    Finding finding;
    finding.check = kPlan;
    finding.text = "is not compared with one of the measured network, as the config's has tiers";
    return {finding};
  }
  const bool described = job.cluster().has_network();
  const Plan claimed = PlanWith(job, model, job.cluster().network());
  const Plan found = PlanWith(job, model, measured);
  Finding finding;
  finding.check = kPlan;
  finding.text = std::string("with ") +
                 (described ? "the config's network " : "the network that is taken by default ") +
                 PlanText(claimed) + ", with the measured one " + PlanText(found);
  const double difference = ExpectedIterationMs(found) - ExpectedIterationMs(claimed);
  const bool alike = SameSchemes(claimed, found) &&
                     std::abs(difference) < kPlanDifference * ExpectedIterationMs(claimed);
  // A plan by time measures what the config does not say.
  if (alike || (!described && job.communication().policy() == Communication::TIME)) {
    return {finding};
  }
  finding.level = FindingLevel::kWarning;
  finding.mend =
      "write " + ToWriteDown(measured) + " into cluster" +
      (described ? ", or leave network out and plan by policy TIME, which measures it" : "");
  return {finding};
}

}  // namespace poseidon
