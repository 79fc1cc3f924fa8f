// What workers measure of the network before the plan is made is what the network does.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/random.h"
#include "core/units.h"
#include "tests/simulation/training_case.h"

namespace poseidon {
namespace {

SimulatedClusterOptions ProbedTraining(int workers, const NicSpec& nic) {
  SimulatedClusterOptions options =
      SmallTraining(workers, 2, {DenseLayer("conv", 1000)}, 2, std::chrono::milliseconds(1));
  options.job.mutable_communication()->set_policy(Communication::TIME);
  options.layout = ColocatedLayout(options.job, nic);
  return options;
}

TEST(LinkProbeTest, MeasuresLatencyAndGoodput) {
  for (const int workers : {2, 3, 7, 16}) {
    for (const double goodput : {1e8, 1.1e9, 1.2e10}) {
      for (const int microseconds : {10, 100, 1000}) {
        SCOPED_TRACE(std::to_string(workers) + " workers, " + std::to_string(goodput) +
                     " bytes/s, " + std::to_string(microseconds) + " us");
        NicSpec nic;
        nic.goodput_bytes_per_second = goodput;
        nic.latency = std::chrono::microseconds(microseconds);
        SimulatedClusterOptions options = ProbedTraining(workers, nic);
        const Duration cost = ParseDuration(Network().message_cost());
        options.network.processing = MessageProcessing(cost);
        SimulatedCluster cluster(options);
        ASSERT_TRUE(cluster.Run(kForever));
        ExpectAllEnded(cluster, ExitCode::kSuccess);
        ASSERT_TRUE(cluster.scheduler().plan->has_network());
        const Network& network = cluster.scheduler().plan->network();
        EXPECT_NEAR(static_cast<double>(ParseBitRate(network.bandwidth())) / 8, goodput,
                    0.05 * goodput);
        // An empty message's header takes its time, too: 64 bytes.
        const double latency = microseconds * 1e-6;
        EXPECT_NEAR(ToSeconds(ParseDuration(network.latency())), latency,
                    0.05 * latency + 64 / goodput);
        EXPECT_TRUE(network.colocated());
        if (HasFailure()) return;
      }
    }
  }
}

// Machines differ; the slower one of two says what their link does. No other's burst disturbs it,
// though fast machines are done with their bursts earlier.
TEST(LinkProbeTest, EachLinkIsMeasuredAlone) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const int workers = 2 + static_cast<int>(random.Below(9));
    const bool every_pair = random.Below(2) == 1;
    NicSpec nic;
    nic.latency = std::chrono::microseconds(10 + random.Below(1000));
    SimulatedClusterOptions options = ProbedTraining(workers, nic);
    options.job.mutable_cluster()->set_link_probe(every_pair ? Cluster::EVERY_PAIR
                                                             : Cluster::POWERS_OF_TWO);
    std::vector<double> goodputs;
    for (NicSpec& machine : options.layout.machines) {
      goodputs.push_back(1e7 * std::pow(1000, random.Uniform()));
      machine.goodput_bytes_per_second = goodputs.back();
    }
    SimulatedCluster cluster(options);
    ASSERT_TRUE(cluster.Run(kForever));
    ExpectAllEnded(cluster, ExitCode::kSuccess);
    int links = 0;
    for (const wire::LinkReport& report : cluster.scheduler().links) {
      for (const wire::LinkMeasurement& link : report.links()) {
        ++links;
        const int to = (report.rank() + link.distance()) % workers;
        const double goodput = std::min(goodputs.at(static_cast<size_t>(report.rank())),
                                        goodputs.at(static_cast<size_t>(to)));
        EXPECT_LT(link.goodput_bytes_per_second(), 1.05 * goodput) << report.rank() << " to " << to;
        // The echo of the last message may wait behind the burst to this worker, for which a
        // simulated machine has any amount of memory: a fast sender's is there at once.
        const int source = (report.rank() + workers - link.distance()) % workers;
        if (goodputs.at(static_cast<size_t>(source)) >
            goodputs.at(static_cast<size_t>(report.rank()))) {
          continue;
        }
        EXPECT_GT(link.goodput_bytes_per_second(), 0.8 * goodput) << report.rank() << " to " << to;
      }
    }
    int distances = 0;
    for (int distance = 1; distance < workers; distance += every_pair ? 1 : distance) ++distances;
    EXPECT_EQ(links, workers * distances);
    if (HasFailure()) return;
  }
}

// However slow, so that nothing is given up: a burst of a fixed size would take minutes here.
TEST(LinkProbeTest, LinksHoweverSlowTakeSecondsOnly) {
  for (const double goodput : {2.5e5, 2.5e6}) {
    NicSpec nic;
    nic.goodput_bytes_per_second = goodput;
    SimulatedClusterOptions options = ProbedTraining(16, nic);
    Time last{};
    options.network.faults.delay = 1e-12;  // so that the filter is asked
    SimulatedCluster* running = nullptr;
    options.network.fault_filter = [&](const Envelope& envelope) {
      if (envelope.kind == MessageKind::kProbe) last = running->runtime().now();
      return false;
    };
    SimulatedCluster cluster(options);
    running = &cluster;
    ASSERT_TRUE(cluster.Run(kForever));
    // Four distances, each at most three trials and three bursts of a message, where those of
    // several workers meet, or a fifth of a second.
    EXPECT_LE(ToSeconds(last), 4 * (0.2 + 6 * 262144 / goodput));
    EXPECT_NEAR(
        static_cast<double>(ParseBitRate(cluster.scheduler().plan->network().bandwidth())) / 8,
        goodput, 0.05 * goodput);
  }
}

TEST(LinkProbeTest, ANetworkInTheJobIsNotMeasured) {
  SimulatedClusterOptions options = ProbedTraining(3, NicSpec());
  options.job.mutable_cluster()->mutable_network()->set_bandwidth("1Gbps");
  int probes = 0;
  options.network.faults.delay = 1e-12;  // so that the filter is asked
  options.network.fault_filter = [&probes](const Envelope& envelope) {
    probes += envelope.kind == MessageKind::kProbe ? 1 : 0;
    return false;
  };
  SimulatedCluster cluster(options);
  ASSERT_TRUE(cluster.Run(kForever));
  EXPECT_EQ(probes, 0);
  EXPECT_EQ(cluster.scheduler().plan->network().bandwidth(), "1Gbps");
}

}  // namespace
}  // namespace poseidon
