// Groups of machines in SimRuntime: by hand, and random trees against an independent model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "tests/unit/transport/sim_testing.h"
#include "transport/sim/sim_runtime.h"

namespace poseidon {
namespace {

using namespace sim_testing;
using ::testing::ElementsAre;

constexpr NicSpec kNic{1e9, Ns(1000)};

// Two racks of `machines` each, whose uplinks are alike.
struct TwoRacks : ScriptedCluster {
  TwoRacks(int machines, const UplinkSpec& uplink) : ScriptedCluster(0) {
    for (int rack = 0; rack < 2; ++rack) {
      const int group = runtime.AddGroup(uplink);
      for (int i = 0; i < machines; ++i) AddWorker(runtime.AddMachine(kNic, group));
    }
  }
};

TEST(SimTiersTest, NothingIsCrossedWithinAGroup) {
  TwoRacks cluster(2, {1e3, Ns(1000000)});
  cluster.SendAtStart(0, {Message(1, 5000)});
  cluster.runtime.Run(kForever);
  EXPECT_THAT(cluster.TimesAt(1), ElementsAre(6000));
}

TEST(SimTiersTest, EnvelopeAloneCutsThroughLinksOfAnySpeed) {
  for (const double goodput : {0.25e9, 1e9, 8e9}) {
    TwoRacks cluster(1, {goodput, Ns(200)});
    cluster.SendAtStart(0, {Message(1, 5000)});
    cluster.runtime.Run(kForever);
    EXPECT_THAT(cluster.TimesAt(1), ElementsAre(1400 + (goodput < 1e9 ? 20000 : 5000)));
  }
}

TEST(SimTiersTest, MachinesOutsideOfAllGroupsCrossTheOthersUplinksOnly) {
  ScriptedCluster cluster(1);
  const int outer = cluster.runtime.AddGroup({0.5e9, Ns(10)});
  const int inner = cluster.runtime.AddGroup({1e9, Ns(3)}, outer);
  cluster.AddWorker(cluster.runtime.AddMachine(kNic, inner));
  cluster.AddWorker(cluster.runtime.AddMachine(kNic, outer));
  cluster.SendAtStart(0, {Message(1, 5000)});
  cluster.SendAtStart(1, {Message(2, 2000), Message(0, 5000)});
  cluster.runtime.Run(kForever);
  EXPECT_THAT(cluster.TimesAt(1), ElementsAre(1000 + 10 + 3 + 10000));
  EXPECT_THAT(cluster.TimesAt(2), ElementsAre(1000 + 3 + 2000));
  EXPECT_THAT(cluster.TimesAt(0), ElementsAre(2000 + 1000 + 10 + 3 + 10000));
}

// Four machines of 1 byte/ns behind one uplink of 1 byte/ns: 4:1 oversubscribed.
TEST(SimTiersTest, SendersShareAnOversubscribedUplink) {
  constexpr int kMachines = 4;
  constexpr int kEach = 10;
  TwoRacks cluster(kMachines, {1e9, Ns(500)});
  for (int i = 0; i < kMachines; ++i) {
    cluster.SendAtStart(i, std::vector<Envelope>(kEach, Message(kMachines + i, 5000)));
    // The other direction is nobody's hindrance.
    cluster.SendAtStart(kMachines + i, {Message(i, 100)});
  }
  EXPECT_EQ(cluster.runtime.Run(kForever), Ns(1000 + 2 * 500 + kMachines * kEach * 5000));
  for (int i = 0; i < kMachines; ++i) {
    const std::vector<int64_t> times = cluster.TimesAt(kMachines + i);
    ASSERT_EQ(times.size(), size_t{kEach});
    EXPECT_EQ(times[1] - times[0], kMachines * 5000) << "equal shares";
  }
}

// A slow sender does not keep a fast uplink busy for as long as it sends.
TEST(SimTiersTest, FastUplinksCarryManySlowSenders) {
  constexpr int kMachines = 8;
  TwoRacks cluster(kMachines, {8e9, Ns(0)});
  for (int i = 0; i < kMachines; ++i) {
    cluster.SendAtStart(i, std::vector<Envelope>(10, Message(kMachines + i, 8000)));
  }
  // All at line rate, but for one another's moment in the uplink.
  const int64_t end = cluster.runtime.Run(kForever).count();
  EXPECT_GE(end, 1000 + 10 * 8000);
  EXPECT_LE(end, 1000 + 11 * 8000);
}

TEST(SimTiersTest, WhatGoesToTheDeadIsLostAndCounted) {
  TwoRacks cluster(1, {1e9, Ns(500)});
  cluster.SendAtStart(0, std::vector<Envelope>(5, Message(1, 5000)));
  cluster.runtime.At(Ns(8000), [&] { cluster.runtime.Kill(1); });
  cluster.runtime.Run(kForever);
  EXPECT_EQ(cluster.runtime.statistics().envelopes + cluster.runtime.statistics().lost, 5);
  EXPECT_EQ(cluster.runtime.statistics().envelopes, 1);
}

TEST(SimTiersTest, RefusesUplinksThatCarryNothing) {
  SimRuntime runtime{SimOptions{}};
  EXPECT_THROW(runtime.AddGroup({0, Ns(0)}), ConfigError);
  EXPECT_THROW(runtime.AddGroup({1e9, Ns(-1)}), ConfigError);
}

// A model that knows all envelopes in advance and takes the links one after the other.

struct Uplink {
  int64_t bytes_per_microsecond;
  int64_t latency;
  int parent;
};

struct Sending {
  int64_t time;
  int from, to;
  int64_t size;
  int64_t ready = 0, all_in = 0, arrival = -1;
};

struct RandomTree {
  std::vector<Uplink> groups;  // parents first
  std::vector<int64_t> rates;  // of machines
  std::vector<int> group_of;

  explicit RandomTree(Random& random) {
    const auto below = [&random](uint64_t limit) {
      return static_cast<int>(random.Next() % limit);
    };
    const int count = 1 + below(6);
    for (int g = 0; g < count; ++g)
      groups.push_back({100 + below(3000), below(5000), below(g + 1) - 1});
    const int machines = 2 + below(12);
    for (int m = 0; m < machines; ++m) {
      rates.push_back(100 + below(2000));
      group_of.push_back(below(count + 1) - 1);
    }
  }

  std::vector<int> Around(int machine) const {  // innermost first
    std::vector<int> around;
    for (int g = group_of[machine]; g >= 0; g = groups[g].parent) around.push_back(g);
    return around;
  }
  bool Crosses(const Sending& sending, int group, bool up) const {
    const std::vector<int> inside = Around(up ? sending.from : sending.to);
    const std::vector<int> outside = Around(up ? sending.to : sending.from);
    return std::find(inside.begin(), inside.end(), group) != inside.end() &&
           std::find(outside.begin(), outside.end(), group) == outside.end();
  }
};

int64_t Takes(int64_t bytes, int64_t rate) { return (bytes * 1000 + rate - 1) / rate; }

std::vector<Sending*> ByReady(std::vector<Sending*> sendings) {
  std::stable_sort(sendings.begin(), sendings.end(),
                   [](const Sending* a, const Sending* b) { return a->ready < b->ready; });
  return sendings;
}

void PassUplink(const RandomTree& tree, int g, bool up, std::vector<Sending>& sendings) {
  std::vector<Sending*> crossing;
  for (Sending& sending : sendings) {
    if (tree.Crosses(sending, g, up)) crossing.push_back(&sending);
  }
  int64_t free = 0;
  for (Sending* sending : ByReady(crossing)) {
    const int64_t start = std::max(free, sending->ready);
    free = start + Takes(sending->size, tree.groups[g].bytes_per_microsecond);
    sending->ready = start + tree.groups[g].latency;
    sending->all_in = std::max(free, sending->all_in) + tree.groups[g].latency;
  }
}

// Sets all arrivals. Sendings are in the order of their times.
void Predict(const RandomTree& tree, std::vector<Sending>& sendings) {
  std::vector<int64_t> free(tree.rates.size());
  for (Sending& sending : sendings) {
    const int64_t start = std::max(sending.time, free[sending.from]);
    free[sending.from] = start + Takes(sending.size, tree.rates[sending.from]);
    sending.ready = start + 1000;
    sending.all_in = free[sending.from] + 1000;
  }
  const int groups = static_cast<int>(tree.groups.size());
  for (int g = groups - 1; g >= 0; --g) PassUplink(tree, g, true, sendings);
  for (int g = 0; g < groups; ++g) PassUplink(tree, g, false, sendings);
  std::vector<Sending*> all;
  for (Sending& sending : sendings) {
    const int64_t takes = Takes(sending.size, tree.rates[sending.to]);
    sending.ready = std::max(sending.ready, sending.all_in - takes);
    all.push_back(&sending);
  }
  std::fill(free.begin(), free.end(), 0);
  for (Sending* sending : ByReady(all)) {
    int64_t& ingress = free[sending->to];
    ingress = std::max(ingress, sending->ready) + Takes(sending->size, tree.rates[sending->to]);
    sending->arrival = ingress;
  }
}

// By any moment a link has carried no more than it can have since the first envelope.
void ExpectNoLinkIsTooFast(const RandomTree& tree, const std::vector<Sending>& by_arrival) {
  for (size_t g = 0; g < tree.groups.size(); ++g) {
    for (const bool up : {true, false}) {
      int64_t bytes = 0;
      for (const Sending& sending : by_arrival) {
        if (!tree.Crosses(sending, static_cast<int>(g), up)) continue;
        bytes += sending.size;
        ASSERT_LE(bytes, sending.arrival * tree.groups[g].bytes_per_microsecond / 1000 + 1);
      }
    }
  }
}

TEST(SimTiersTest, RandomTreesCarryEverythingWhenTheModelSays) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const RandomTree tree(random);
    const int machines = static_cast<int>(tree.rates.size());
    // Spread so far that hardly two are ever ready in the same nanosecond, of which the model does
    // not know which is first.
    std::vector<Sending> sendings(300);
    for (Sending& sending : sendings) {
      sending.time = 1 + static_cast<int64_t>(random.Next() % 200000000);
      sending.from = static_cast<int>(random.Next() % machines);
      sending.to = (sending.from + 1 + static_cast<int>(random.Next() % (machines - 1))) % machines;
      sending.size = 1 + static_cast<int64_t>(random.Next() % 4000000);
    }
    std::sort(sendings.begin(), sendings.end(),
              [](const Sending& a, const Sending& b) { return a.time < b.time; });

    ScriptedCluster cluster(0);
    for (const Uplink& group : tree.groups) {
      cluster.runtime.AddGroup(
          {1e6 * static_cast<double>(group.bytes_per_microsecond), Ns(group.latency)},
          group.parent);
    }
    for (int m = 0; m < machines; ++m) {
      const NicSpec nic{1e6 * static_cast<double>(tree.rates[m]), Ns(1000)};
      Script& script = cluster.AddWorker(cluster.runtime.AddMachine(nic, tree.group_of[m]));
      script.on_start = [&sendings, m](Outbox& outbox) {
        for (size_t k = 0; k < sendings.size(); ++k) {
          if (sendings[k].from == m) outbox.SetTimer(k, Ns(sendings[k].time));
        }
      };
      script.on_timer = [&sendings](TimerId k, Outbox& outbox) {
        outbox.Send(Message(sendings[k].to, sendings[k].size, 0, static_cast<uint32_t>(k)));
      };
    }
    cluster.runtime.Run(kForever);

    Predict(tree, sendings);
    ASSERT_EQ(cluster.arrivals.size(), sendings.size());
    std::vector<Sending> by_arrival;
    for (const Arrival& arrival : cluster.arrivals) {
      Sending& sending = sendings[arrival.envelope.chunk];
      ASSERT_EQ(arrival.to, sending.to);
      ASSERT_EQ(arrival.time, sending.arrival);
      by_arrival.push_back(sending);
      sending.arrival = -1;  // a second one would not match
    }
    ExpectNoLinkIsTooFast(tree, by_arrival);
  }
}

}  // namespace
}  // namespace poseidon
