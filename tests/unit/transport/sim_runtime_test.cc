// The actors on SimRuntime: timers, outboxes, errors, death. Its network is sim_network_test.cc's.
#include "transport/sim/sim_runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "proto/wire.pb.h"
#include "tests/unit/transport/sim_testing.h"

namespace poseidon {
namespace {

using namespace sim_testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(SimRuntimeTest, RandomTimersExpireWhenAMapSays) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    ScriptedCluster cluster(1);
    Random random(seed);
    std::map<TimerId, Time> expected;
    Time last{};
    const auto change = [&](Outbox& outbox) {
      if (expected.size() > 30) return;
      for (int i = 0; i < 3; ++i) {
        const TimerId id = static_cast<TimerId>(random.Next() % 20);
        if (random.Next() % 3 == 0) {
          outbox.CancelTimer(id);
          expected.erase(id);
        } else {
          const Duration delay = Ns(static_cast<int64_t>(random.Next() % 100) - 5);
          outbox.SetTimer(id, delay);
          expected[id] = outbox.now + std::max(delay, Ns(0));
        }
      }
    };
    int expiries = 0;
    cluster.scripts[0]->on_start = change;
    cluster.scripts[0]->on_timer = [&](TimerId id, Outbox& outbox) {
      ASSERT_TRUE(expected.contains(id));
      EXPECT_EQ(expected[id], outbox.now);
      expected.erase(id);
      for (const auto& [other, time] : expected) EXPECT_GE(time, outbox.now);
      last = outbox.now;
      if (++expiries < 2000) change(outbox);
    };
    EXPECT_EQ(cluster.runtime.Run(kForever), last) << "canceled timers must not take time";
    EXPECT_THAT(expected, IsEmpty());
  }
}

TEST(SimRuntimeTest, OutboxIsCarriedOutInItsOrder) {
  SimRuntime runtime{SimOptions{}};
  const int machine = runtime.AddMachine({});
  const SimNode scheduler = runtime.AddNode({Role::kScheduler, 0}, machine);
  const SimNode worker = runtime.AddNode({Role::kWorker, -1}, machine);
  std::vector<std::string> trace;
  auto hear = [&trace](const Envelope& envelope, Outbox&) {
    trace.push_back("message from " + envelope.from.ToString());
  };
  auto listener = std::make_unique<Script>();
  listener->on_message = hear;
  auto joining = std::make_unique<Script>();
  joining->on_start = [&](Outbox& outbox) {
    auto attached = std::make_unique<Script>();
    attached->on_start = [&trace](Outbox&) { trace.push_back("start"); };
    attached->on_message = hear;
    for (Address to : {Here(kLane), Here(kControlLane), Address{{Role::kScheduler, 0}, 0}}) {
      outbox.Send({.kind = MessageKind::kReady, .from = {}, .to = to, .body = {}});
    }
    outbox.Attach(kLane, std::move(attached));
    outbox.identity = Worker(7);
    outbox.routes.push_back({{{Role::kScheduler, 0}, 0}, runtime.endpoint(scheduler, 0)});
  };
  joining->on_message = hear;
  runtime.Attach(scheduler, kControlLane, std::move(listener));
  runtime.Attach(worker, kControlLane, std::move(joining));
  runtime.Run(kForever);
  EXPECT_THAT(trace, ElementsAre("start", "message from worker 7 control",
                                 "message from worker 7 control", "message from worker 7 control"));
}

TEST(SimRuntimeTest, StartComesFirstAndReplacedActorsAreGone) {
  ScriptedCluster cluster(1);
  std::vector<std::string> trace;
  cluster.scripts[0]->on_start = [](Outbox& outbox) {
    outbox.Send(Message(0, 1));
    outbox.SetTimer(1, Ns(10));
  };
  cluster.scripts[0]->on_timer = [&](TimerId, Outbox&) { trace.push_back("old timer"); };
  // After OnStart of the first, before its message arrives.
  cluster.runtime.At(Ns(0), [&] {
    Script* successor = cluster.Attach(0, kLane);
    successor->on_start = [&](Outbox&) { trace.push_back("start"); };
    successor->on_message = [&](const Envelope&, Outbox&) { trace.push_back("message"); };
  });
  EXPECT_EQ(cluster.runtime.Run(kForever), Ns(0));
  EXPECT_THAT(trace, ElementsAre("start", "message"));
}

TEST(SimRuntimeTest, CountsWhatHasNowhereToGo) {
  ScriptedCluster cluster(2);
  Envelope local = Message(0, 1);
  local.to = Here(kLane + 1);
  cluster.SendAtStart(0, {Message(5, 10), Message(-1, 10), local, Message(1, 10)});
  cluster.runtime.Run(kForever);
  EXPECT_EQ(cluster.runtime.statistics().unroutable, 3);
  EXPECT_EQ(cluster.runtime.statistics().envelopes, 1);
}

TEST(SimRuntimeTest, ErrorsOfActorsGoToTheApplication) {
  ScriptedCluster cluster(1);
  cluster.scripts[0]->on_start = [](Outbox& outbox) {
    outbox.Send(Message(0, 1));
    outbox.SetTimer(1, Ns(10));
    throw PeerLost("worker 3 is gone");
  };
  wire::End end;
  Envelope failed;
  Script* application = cluster.Attach(0, kApplicationLane);
  application->on_message = [&](const Envelope& envelope, Outbox&) {
    failed = envelope;
    ASSERT_TRUE(end.ParseFromString(envelope.body.ToString()));
    if (end.exit_code() != 0) throw PeerLost(end.reason());
  };
  EXPECT_THROW(cluster.runtime.Run(kForever), PeerLost);
  EXPECT_EQ(failed.kind, MessageKind::kFailed);
  EXPECT_EQ(failed.from, (Address{Worker(0), kLane}));
  EXPECT_EQ(end.exit_code(), static_cast<int>(ExitCode::kPeerLost));
  EXPECT_EQ(end.reason(), "worker 3 is gone");
  EXPECT_EQ(cluster.runtime.Run(kForever), Ns(0)) << "the outbox of a failed call is dropped";
  EXPECT_THAT(cluster.arrivals, IsEmpty());
  EXPECT_EQ(cluster.runtime.statistics().unroutable, 0);

  cluster.AddWorker(0);
  cluster.SendAtStart(1, {Message(0, 1)});
  cluster.runtime.Run(kForever);
  EXPECT_EQ(cluster.runtime.statistics().unroutable, 1) << "an actor that threw is gone";
}

TEST(SimRuntimeTest, RoutesTakeAddressesThatNoAdmittedNodeHas) {
  ScriptedCluster cluster(2);
  for (const int rank : {-1, -7, 1000000, 0}) {
    cluster.runtime.SetRoute(0, {Worker(rank), kLane}, cluster.runtime.endpoint(1, kLane));
  }
  cluster.SendAtStart(0, {Message(-1, 10), Message(-7, 10), Message(1000000, 10), Message(0, 10),
                          Message(-2, 10), Message(1000001, 10)});
  cluster.runtime.Run(kForever);
  EXPECT_EQ(cluster.TimesAt(1).size(), 4u);
  EXPECT_EQ(cluster.runtime.statistics().unroutable, 2);
}

TEST(SimRuntimeTest, BadEndpointsAreNamed) {
  ScriptedCluster cluster(1);
  for (const char* endpoint : {"tcp://host:1", "sim://1/0", "sim://0", "sim://0/0x", "sim://0/999",
                               "sim://-1/0", "sim:///0", ""}) {
    try {
      cluster.runtime.SetRoute(0, {Worker(1), kLane}, endpoint);
      FAIL() << endpoint;
    } catch (const ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("to worker 1 lane 0 is '" + std::string(endpoint) + "'"));
    }
  }
}

TEST(SimRuntimeTest, KilledNodeIsGoneAndItsSuccessorIsAnother) {
  ScriptedCluster cluster(3);
  bool timer_expired = false;
  cluster.scripts[0]->on_start = [](Outbox& outbox) {
    // The first arrives, the second is on its way, the others wait in the egress queue.
    for (uint32_t k = 0; k < 5; ++k) outbox.Send(Message(1, 5000, 0, k));
    outbox.Send(Message(2, 5000, 1, 5));
  };
  cluster.scripts[1]->on_start = [](Outbox& outbox) {
    for (uint32_t k = 10; k < 13; ++k) outbox.Send(Message(2, 5000, 0, k));
    outbox.SetTimer(1, Ns(50000));
  };
  cluster.scripts[1]->on_timer = [&](TimerId, Outbox&) { timer_expired = true; };
  cluster.runtime.At(Ns(7000), [&] {
    cluster.runtime.Kill(1);
    cluster.runtime.Kill(1);
  });
  cluster.runtime.Run(kForever);
  EXPECT_FALSE(timer_expired);
  // 10 and 11 had begun to leave; 5 goes as soon as 0's egress is free at 10,000.
  EXPECT_THAT(cluster.Chunks(), ElementsAre(0, 10, 11, 5));
  EXPECT_THAT(cluster.TimesAt(2), ElementsAre(6000, 11000, 16000));
  EXPECT_EQ(cluster.runtime.statistics().lost, 5);

  cluster.arrivals.clear();
  cluster.AddWorker(1);
  cluster.runtime.SetRoute(0, {Worker(1), kLane}, cluster.runtime.endpoint(3, kLane));
  Script* sender = cluster.Attach(0, kLane);
  sender->on_start = [](Outbox& outbox) { outbox.Send(Message(1, 1, 0, 20)); };
  cluster.runtime.Run(kForever);
  EXPECT_EQ(cluster.TimesAt(3).size(), 1u);
}

TEST(SimRuntimeTest, ActorMayKillItsOwnNode) {
  ScriptedCluster cluster(2);
  cluster.scripts[0]->on_start = [&](Outbox& outbox) {
    cluster.runtime.Kill(0);
    outbox.Send(Message(1, 1));
  };
  cluster.runtime.Run(kForever);
  EXPECT_THAT(cluster.arrivals, IsEmpty());
  EXPECT_EQ(cluster.runtime.statistics().unroutable, 0);
}

// A nanosecond for each byte.
SimOptions Processing() {
  SimOptions options;
  options.processing = [](const Envelope& envelope) {
    return Ns(static_cast<int64_t>(envelope.body.size()));
  };
  return options;
}

TEST(SimProcessingTest, EnvelopesWaitForABusyLane) {
  ScriptedCluster cluster(std::vector<NicSpec>(2, NicSpec{2e9, Ns(1000)}), Processing());
  cluster.scripts[1]->on_message = [](const Envelope& envelope, Outbox& outbox) {
    Envelope answer = envelope;
    answer.to = envelope.from;
    outbox.Send(std::move(answer));
    if (envelope.chunk == 0) outbox.SetTimer(1, Ns(100));
  };
  int64_t timer = 0;
  cluster.scripts[1]->on_timer = [&](TimerId, Outbox& outbox) { timer = outbox.now.count(); };
  Script* other = cluster.Attach(1, kLane + 1);
  int64_t other_handled = 0;
  other->on_message = [&](const Envelope&, Outbox& outbox) { other_handled = outbox.now.count(); };
  cluster.runtime.SetRoute(0, {Worker(1), kLane + 1}, cluster.runtime.endpoint(1, kLane + 1));
  Envelope aside = Message(1, 1000);
  aside.to.lane = kLane + 1;
  cluster.SendAtStart(0,
                      {Message(1, 4000, 0, 0), Message(1, 1000, 0, 1), Message(1, 0, 0, 2), aside});
  cluster.runtime.Run(kForever);
  // They arrive at 3000, 3500, 3500 and 4000; the first keeps the lane to 7000, the second to 8000.
  EXPECT_EQ(timer, 7100);
  EXPECT_EQ(other_handled, 5000);
  // Each answer takes half a nanosecond a byte and 1000; then the asker's lane is busy, too.
  EXPECT_THAT(cluster.Chunks(), ElementsAre(0, 1, 2));
  EXPECT_THAT(cluster.TimesAt(0), ElementsAre(14000, 15000, 15000));
}

TEST(SimProcessingTest, RandomEnvelopesAreHandledOneAfterTheOther) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    ScriptedCluster cluster(std::vector<NicSpec>(1, NicSpec{}), Processing());
    std::map<int64_t, std::vector<Envelope>> arriving;
    uint32_t count = 0;
    for (int k = 0; k < 200; ++k) {
      Envelope envelope = Message(0, static_cast<int64_t>(random.Next() % 3) * 50, 0, 0);
      envelope.to = Here(kLane);
      arriving[static_cast<int64_t>(random.Next() % 10000)].push_back(envelope);
    }
    std::vector<int64_t> expected;
    int64_t free = 0;
    for (auto& [time, envelopes] : arriving) {
      for (Envelope& envelope : envelopes) {
        envelope.chunk = count++;
        free = std::max(free, time) + static_cast<int64_t>(envelope.body.size());
        expected.push_back(free);
      }
    }
    cluster.scripts[0]->on_start = [&](Outbox& outbox) {
      for (const auto& [time, envelopes] : arriving) outbox.SetTimer(time, Ns(time));
    };
    cluster.scripts[0]->on_timer = [&](TimerId time, Outbox& outbox) {
      outbox.messages = arriving[static_cast<int64_t>(time)];
    };
    cluster.runtime.Run(kForever);
    EXPECT_EQ(cluster.TimesAt(0), expected) << "seed " << seed;
    const std::vector<uint32_t> chunks = cluster.Chunks();
    EXPECT_TRUE(std::is_sorted(chunks.begin(), chunks.end())) << "seed " << seed;
  }
}

TEST(SimProcessingTest, WhatABusyLaneHoldsDiesWithItsNode) {
  ScriptedCluster cluster(std::vector<NicSpec>(2, NicSpec{1e9, Ns(1000)}), Processing());
  cluster.SendAtStart(0, {Message(1, 5000), Message(1, 5000)});
  cluster.runtime.At(Ns(12000), [&] { cluster.runtime.Kill(1); });
  cluster.runtime.Run(kForever);
  EXPECT_THAT(cluster.TimesAt(1), ElementsAre(11000));
  EXPECT_EQ(cluster.runtime.statistics().envelopes, 1);
  EXPECT_EQ(cluster.runtime.statistics().lost, 1);
}

TEST(SimRuntimeTest, AWatchedConnectionIsLostWhenNothingArrivesForSoLong) {
  // What is sent in the first microsecond arrives, and of the rest what `arrives` says by the time.
  const auto lost_at = [](const std::function<bool(Time)>& arrives) {
    SimRuntime* running = nullptr;
    SimOptions options;
    options.faults.drop = 1;
    options.fault_filter = [&](const Envelope&) { return !arrives(running->now()); };
    ScriptedCluster cluster(std::vector<NicSpec>(2, NicSpec{1e9, Ns(100)}), options);
    running = &cluster.runtime;
    Script& sender = *cluster.scripts[0];
    sender.on_start = [&](Outbox& outbox) {
      outbox.routes.push_back(
          {{Worker(1), kLane}, cluster.runtime.endpoint(1, kLane), Ns(10'000), true});
      outbox.SetTimer(1, Ns(0));
    };
    sender.on_timer = [](TimerId, Outbox& outbox) {
      outbox.Send(Message(1, 1));
      if (outbox.now < Ns(100'000)) outbox.SetTimer(1, Ns(1000));
    };
    std::vector<int64_t> times;
    sender.on_message = [&](const Envelope& envelope, Outbox& outbox) {
      EXPECT_EQ(envelope.kind, MessageKind::kConnectionLost);
      EXPECT_EQ(envelope.from, (Address{Worker(1), kLane}));
      times.push_back(outbox.now.count());
    };
    cluster.runtime.Run(kForever);
    return times;
  };
  EXPECT_THAT(lost_at([](Time) { return true; }), IsEmpty());
  EXPECT_THAT(lost_at([](Time) { return false; }), IsEmpty()) << "it never was connected";
  EXPECT_THAT(lost_at([](Time now) { return now < Ns(500); }), ElementsAre(11'000));
  EXPECT_THAT(lost_at([](Time now) { return now < Ns(500) || now > Ns(9'500); }), IsEmpty());
  EXPECT_THAT(lost_at([](Time now) { return now < Ns(500) || now == Ns(20'000); }),
              ElementsAre(11'000, 31'000));
}

TEST(SimRuntimeTest, RunStopsAtDeadlineHaltAndEnd) {
  ScriptedCluster cluster(1);
  std::vector<int64_t> times;
  for (int64_t time : {300, 100, 200}) {
    cluster.runtime.At(Ns(time), [&, time] {
      times.push_back(time);
      if (time == 100) cluster.runtime.Halt();
    });
  }
  EXPECT_EQ(cluster.runtime.Run(Ns(50)), Ns(50));
  EXPECT_THAT(times, IsEmpty());
  EXPECT_EQ(cluster.runtime.Run(kForever), Ns(100));
  EXPECT_EQ(cluster.runtime.Run(Ns(200)), Ns(200));
  EXPECT_THAT(times, ElementsAre(100, 200));
  EXPECT_EQ(cluster.runtime.Run(kForever), Ns(300));
  cluster.runtime.At(Ns(0), [&] { times.push_back(cluster.runtime.now().count()); });
  EXPECT_EQ(cluster.runtime.Run(kForever), Ns(300));
  EXPECT_THAT(times, ElementsAre(100, 200, 300, 300));
}

TEST(SimRuntimeTest, NodesShareOneTableOfRoutes) {
  ScriptedCluster cluster(0);
  auto routes = std::make_shared<std::vector<Outbox::Route>>();
  constexpr int kWorkers = 3;
  for (int rank = 0; rank < kWorkers; ++rank) {
    const SimNode node = cluster.runtime.AddNode(Worker(rank), cluster.runtime.AddMachine({}));
    cluster.scripts.push_back(cluster.Attach(node, kLane));
    cluster.scripts.back()->on_message = [&cluster, rank](const Envelope& envelope, Outbox&) {
      cluster.arrivals.push_back({0, rank, envelope});
    };
    routes->push_back({{Worker(rank), kLane}, cluster.runtime.endpoint(node, kLane)});
  }
  for (Script* script : cluster.scripts) {
    script->on_start = [routes](Outbox& outbox) {
      outbox.shared_routes = routes;
      for (int to = 0; to < kWorkers; ++to) outbox.Send(Message(to, 1));
    };
  }
  // One's own routes come first.
  cluster.runtime.SetRoute(0, {Worker(1), kLane}, cluster.runtime.endpoint(2, kLane));
  cluster.runtime.Run(kForever);
  std::multiset<std::pair<int, int>> ways;  // from, to
  for (const Arrival& arrival : cluster.arrivals) {
    ways.insert({arrival.envelope.from.node.rank, arrival.to});
  }
  const std::multiset<std::pair<int, int>> expected = {{0, 2}, {0, 2}, {1, 0},
                                                       {1, 2}, {2, 0}, {2, 1}};
  EXPECT_EQ(ways, expected);
  EXPECT_EQ(cluster.runtime.statistics().unroutable, kWorkers);  // to itself
}

}  // namespace
}  // namespace poseidon
