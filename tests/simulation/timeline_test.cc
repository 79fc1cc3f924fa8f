// Wait-free backpropagation: what overlaps with what, to the microsecond.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "tests/simulation/training_case.h"

namespace poseidon {
namespace {

constexpr NodeId kWorker{Role::kWorker, 1};

// The first event that fits; `name` as the traces call it.
std::optional<Trace::Event> FindEvent(const std::deque<Trace::Event>& events,
                                      const std::string& name, const std::string& layer,
                                      int64_t iteration) {
  const auto found = std::find_if(events.begin(), events.end(), [&](const Trace::Event& event) {
    return event.name == name && event.layer == layer && event.iteration == iteration;
  });
  if (found == events.end()) return std::nullopt;
  return *found;
}

// Four layers of 10 ms; the upper ones are large for the network: 4 MB at 1 GB/s are 4 ms to a
// server, from each of 3 workers.
SimulatedClusterOptions TracedTraining(Communication::Policy policy) {
  SimulatedClusterOptions options =
      SmallTraining(3, 2,
                    {DenseLayer("low", 1000), DenseLayer("middle", 1000),
                     DenseLayer("high", 1000000), InnerProductLayer("top", 1000, 1000, 8)},
                    4, std::chrono::milliseconds(10));
  options.work.arithmetic = {};
  options.job.mutable_communication()->set_policy(policy);
  options.job.mutable_communication()->set_kv_pair_bytes(400000);
  NicSpec nic;
  nic.goodput_bytes_per_second = 1e9;
  options.layout = SeparateLayout(options.job, nic);
  options.trace_events = 100000;
  return options;
}

TEST(TimelineTest, GradientsArriveBeforeTheLayerBelowHasComputedItsOwn) {
  SimulatedCluster cluster(TracedTraining(Communication::ALL_PS));
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kSuccess);
  const std::deque<Trace::Event> worker = cluster.events(kWorker);
  const std::string below[] = {"high", "middle", "low"};
  const std::string layers[] = {"top", "high", "middle"};
  for (int64_t iteration = 0; iteration < 4; ++iteration) {
    for (int i = 0; i < 3; ++i) {
      SCOPED_TRACE(layers[i] + ", iteration " + std::to_string(iteration));
      std::optional<Time> first;
      for (int server = 0; server < 2; ++server) {
        const auto arrived = FindEvent(cluster.events({Role::kServer, server}), "gradient arrived",
                                       layers[i], iteration);
        if (arrived && (!first || arrived->begin < *first)) first = arrived->begin;
      }
      ASSERT_TRUE(first);
      const auto own = FindEvent(worker, "backward", layers[i], iteration);
      const auto next = FindEvent(worker, "backward", below[i], iteration);
      ASSERT_TRUE(own && next);
      EXPECT_EQ(next->begin, own->end);  // backward does not wait for the network
      EXPECT_GT(*first, own->end);
      EXPECT_LT(*first, next->end);
    }
  }
}

TEST(TimelineTest, AnExchangeLastsUntilTheLayerIsFreshAndSaysItsBytes) {
  SimulatedCluster cluster(TracedTraining(Communication::ALL_PS));
  ASSERT_TRUE(cluster.Run(kForever));
  const std::deque<Trace::Event> worker = cluster.events(kWorker);
  for (int64_t iteration = 1; iteration < 4; ++iteration) {
    const auto exchange = FindEvent(worker, "exchange", "high", iteration);
    const auto sent = FindEvent(worker, "send", "high", iteration - 1);
    ASSERT_TRUE(exchange && sent);
    EXPECT_EQ(exchange->begin, sent->begin);
    EXPECT_EQ(sent->bytes, 4'000'000);
    EXPECT_EQ(exchange->bytes, 2 * 4'000'000);  // and the new values
    const bool fresh = std::any_of(worker.begin(), worker.end(), [&](const Trace::Event& event) {
      return event.name == "fresh" && event.layer == "high" && event.begin == exchange->end;
    });
    EXPECT_TRUE(fresh);
    EXPECT_NE(exchange->track, sent->track);
  }
}

// A layer's gradient is 4 MB, and a link lets through 1 GB/s.
TEST(TimelineTest, ASendLastsUntilTheLastByteHasLeft) {
  SimulatedCluster cluster(TracedTraining(Communication::ALL_PS));
  ASSERT_TRUE(cluster.Run(kForever));
  const std::deque<Trace::Event> worker = cluster.events(kWorker);
  const auto high = FindEvent(worker, "send", "high", 1);
  const auto exchange = FindEvent(worker, "exchange", "high", 2);
  ASSERT_TRUE(high && exchange);
  EXPECT_GE(high->end - high->begin, std::chrono::milliseconds(4));
  EXPECT_LT(high->end, exchange->end);
  // The layer below has nothing on the wire by then, and 4 kB take as long as they take.
  const auto low = FindEvent(worker, "send", "low", 1);
  ASSERT_TRUE(low);
  EXPECT_EQ(low->bytes, 4000);
  EXPECT_LT(low->end - low->begin, std::chrono::microseconds(10));
}

TEST(TimelineTest, WhatAnAllReducePassesOnIsSentToo) {
  SimulatedCluster cluster(TracedTraining(Communication::ALL_RING));
  ASSERT_TRUE(cluster.Run(kForever));
  int64_t sent = 0;
  int sends = 0;
  for (const Trace::Event& event : cluster.events(kWorker)) {
    if (event.name != "send" || event.layer != "high" || event.iteration != 1) continue;
    sent += event.bytes;
    ++sends;
    EXPECT_GT(event.end, event.begin);
  }
  // Two of three parts are reduced and then gathered, so that two thirds go out twice.
  EXPECT_NEAR(static_cast<double>(sent), 2 * 2 * 4e6 / 3, 100);
  EXPECT_GE(sends, 4);
}

TEST(TimelineTest, TheFirstLayersForwardBeginsWhileDeepLayersStillArrive) {
  for (const Communication::Policy policy : {Communication::ALL_PS, Communication::ALL_SFB}) {
    SCOPED_TRACE(Communication::Policy_Name(policy));
    SimulatedClusterOptions options = TracedTraining(policy);
    for (NicSpec& machine : options.layout.machines) machine.goodput_bytes_per_second = 2e8;
    SimulatedCluster cluster(options);
    ASSERT_TRUE(cluster.Run(kForever));
    const std::deque<Trace::Event> worker = cluster.events(kWorker);
    for (int64_t iteration = 1; iteration < 4; ++iteration) {
      const auto forward = FindEvent(worker, "forward", "low", iteration);
      // Values carry the iteration that they are for.
      const auto last_values =
          std::find_if(worker.rbegin(), worker.rend(), [&](const Trace::Event& event) {
            return event.name == "fresh" && event.layer == "high" && event.iteration == iteration;
          });
      ASSERT_TRUE(forward && last_values != worker.rend());
      EXPECT_LT(forward->begin, last_values->begin);
      // And a layer's forward begins no sooner than its values are there.
      const auto deep = FindEvent(worker, "forward", "high", iteration);
      EXPECT_GE(deep->begin, last_values->begin);
    }
  }
}

TEST(TimelineTest, CommunicationThatFitsBehindComputingCostsNothing) {
  SimulatedClusterOptions options = TracedTraining(Communication::BYTES);
  for (NicSpec& machine : options.layout.machines) machine.goodput_bytes_per_second = 1e12;
  options.work.iterations = 10;
  SimulatedCluster cluster(options);
  ASSERT_TRUE(cluster.Run(kForever));
  for (int rank = 0; rank < 3; ++rank) {
    const std::vector<IterationTimes>& iterations = cluster.trainer(rank).iterations;
    ASSERT_EQ(iterations.size(), 10u);
    for (size_t i = 1; i < iterations.size(); ++i) {
      // Only the round trip of the lowest layer, whose backward comes last, can't be hidden.
      EXPECT_LT(iterations[i].exposed, std::chrono::microseconds(200));
      EXPECT_EQ(iterations[i].end - iterations[i].begin,
                std::chrono::milliseconds(80) + iterations[i].exposed);
      EXPECT_EQ(iterations[i].begin, iterations[i - 1].end);
    }
  }
}

TEST(TimelineTest, TheSameSeedGivesTheSameTraceAndPhantomsTheSameTimes) {
  SimulatedClusterOptions options = RandomTraining(17);
  options.trace_events = 100000;
  options.network.faults.delay = 0.5;
  SimulatedCluster first(options);
  SimulatedCluster second(options);
  options.network.seed = 2;
  SimulatedCluster other(options);
  options.network.seed = 1;
  options.work.arithmetic = {};
  SimulatedCluster phantom(options);
  for (SimulatedCluster* cluster : {&first, &second, &other, &phantom}) {
    ASSERT_TRUE(cluster->Run(kForever));
  }
  ASSERT_FALSE(first.events({Role::kWorker, 0}).empty());
  for (const NodeSpec& node : options.layout.nodes) {
    EXPECT_TRUE(first.events(node.id) == second.events(node.id)) << node.id.ToString();
    EXPECT_TRUE(first.events(node.id) == phantom.events(node.id)) << node.id.ToString();
  }
  EXPECT_FALSE(first.events({Role::kWorker, 0}) == other.events({Role::kWorker, 0}));
}

}  // namespace
}  // namespace poseidon
