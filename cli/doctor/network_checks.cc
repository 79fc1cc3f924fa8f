#include "cli/doctor/network_checks.h"

#include <cstdio>
#include <map>

#include "core/units.h"
#include "planner/cost/information_book.h"
#include "proto/bucket.h"
#include "simulation/plan_trial.h"

namespace poseidon {
namespace {

constexpr const char* kLinks = "links";
constexpr const char* kPlan = "plan";

// A link is called worse than claimed if it has less than this share of the goodput, or so many
// times the latency and more than threads take to be woken.
constexpr double kShare = 0.8;
constexpr double kTimes = 2;
constexpr double kWakingSeconds = 50e-6;
// Predictions that differ by less are alike: the planner's own error is about as large.
constexpr double kPlanDifference = 0.1;

constexpr double kBitsPerByte = 8;

template <typename... Values>
std::string Format(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
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

Finding CheckLink(const wire::LinkMeasurement& link, const std::string& from, const std::string& to,
                  const std::optional<Network>& claimed) {
  const double goodput = link.goodput_bytes_per_second();
  const double latency = link.latency_seconds();
  Finding finding;
  finding.check = kLinks;
  finding.text = from + " to " + to + ": " + LatencyText(latency) + ", " +
                 (goodput > 0 ? RateText(goodput) : "no burst has arrived");
  if (goodput <= 0) finding.level = FindingLevel::kWarning;
  if (!claimed) return finding;
  const double claimed_goodput = GoodputOf(*claimed);
  const double claimed_latency = LatencyOf(*claimed);
  finding.text +=
      "; the config says " + LatencyText(claimed_latency) + ", " + RateText(claimed_goodput);
  const bool slow = goodput < kShare * claimed_goodput;
  const bool late = latency > kTimes * claimed_latency && latency > kWakingSeconds;
  if (!slow && !late) return finding;
  finding.level = FindingLevel::kWarning;
  finding.mend =
      "look at the link and its switch (ethtool, iperf3), or let the config say what it "
      "does (cluster.network)";
  return finding;
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

std::string ToWriteDown(const Network& measured) {
  const Duration latency(ThreeDigits(ParseDuration(measured.latency()).count()));
  return "network { bandwidth: \"" +
         FormatBitRate(ThreeDigits(ParseBitRate(measured.bandwidth()))) +
         "\" goodput_share: 1 latency: \"" + FormatDuration(latency) + "\" }";
}

Plan PlanWith(Job job, const ModelSpec& model, const Network& network) {
  const bool colocated = job.cluster().network().colocated();
  *job.mutable_cluster()->mutable_network() = network;
  job.mutable_cluster()->mutable_network()->set_colocated(colocated);
  return PlanByTrial(InformationBook(model, job.cluster()), job);
}

std::string PlanText(const Plan& plan) {
  return Format("%.2f ms an iteration", ExpectedIterationMs(plan)) + " (" + SchemesText(plan) + ")";
}

}  // namespace

Findings CheckLinks(const std::vector<wire::LinkReport>& reports,
                    const std::vector<std::string>& names, const std::optional<Network>& claimed) {
  Findings findings;
  for (const wire::LinkReport& report : reports) {
    for (const wire::LinkMeasurement& link : report.links()) {
      const auto from = static_cast<size_t>(report.rank());
      const size_t to = (from + static_cast<size_t>(link.distance())) % names.size();
      findings.push_back(CheckLink(link, names.at(from), names.at(to), claimed));
    }
  }
  return findings;
}

Findings ComparePlans(const Job& job, const ModelSpec& model, const Network& measured) {
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
