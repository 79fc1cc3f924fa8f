// The network of SimRuntime: by hand, against an independent model, and with faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "tests/unit/transport/sim_testing.h"
#include "transport/sim/sim_runtime.h"

namespace poseidon {
namespace {

using namespace sim_testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The network, by hand.

TEST(SimNetworkTest, EnvelopeAloneCutsThrough) {
  ScriptedCluster cluster(2);
  cluster.SendAtStart(0, {Message(1, 5000)});
  EXPECT_EQ(cluster.runtime.Run(kForever), Ns(6000));
  EXPECT_THAT(cluster.TimesAt(1), ElementsAre(6000));
  EXPECT_EQ(cluster.arrivals[0].envelope.from, (Address{Worker(0), kLane}));
  EXPECT_EQ(cluster.arrivals[0].envelope.to, (Address{Worker(1), kLane}));
  EXPECT_EQ(cluster.runtime.statistics().envelopes, 1);
  EXPECT_EQ(cluster.runtime.statistics().body_bytes, 5000);
}

TEST(SimNetworkTest, HeaderCountsAndTimesRoundUp) {
  SimOptions options;
  options.header_bytes = 64;
  SimRuntime runtime(options);
  for (int rank = 0; rank < 2; ++rank) {
    runtime.AddNode(Worker(rank), runtime.AddMachine({3e9, Ns(10)}));
  }
  auto sender = std::make_unique<Script>();
  sender->on_start = [](Outbox& outbox) { outbox.Send(Message(1, 1)); };
  runtime.SetRoute(0, {Worker(1), kLane}, runtime.endpoint(1, kLane));
  runtime.Attach(0, kLane, std::move(sender));
  runtime.Attach(1, kLane, std::make_unique<Script>());
  EXPECT_EQ(runtime.Run(kForever), Ns(10 + 22));  // 65 bytes at 3 a nanosecond
}

TEST(SimNetworkTest, TwoSendersShareAReceiver) {
  ScriptedCluster cluster(3);
  cluster.SendAtStart(0, {Message(2, 5000), Message(2, 5000)});
  cluster.SendAtStart(1, {Message(2, 5000), Message(2, 5000)});
  cluster.runtime.Run(kForever);
  EXPECT_THAT(cluster.TimesAt(2), ElementsAre(6000, 11000, 16000, 21000));
}

TEST(SimNetworkTest, TwoReceiversShareASender) {
  ScriptedCluster cluster(3);
  cluster.SendAtStart(0, {Message(1, 5000), Message(2, 5000), Message(1, 5000)});
  cluster.runtime.Run(kForever);
  EXPECT_THAT(cluster.TimesAt(1), ElementsAre(6000, 16000));
  EXPECT_THAT(cluster.TimesAt(2), ElementsAre(11000));
}

TEST(SimNetworkTest, BothDirectionsRunAtFullRate) {
  ScriptedCluster cluster(2);
  cluster.SendAtStart(0, {Message(1, 5000), Message(1, 5000), Message(1, 5000)});
  cluster.SendAtStart(1, {Message(0, 5000), Message(0, 5000), Message(0, 5000)});
  cluster.runtime.Run(kForever);
  EXPECT_THAT(cluster.TimesAt(0), ElementsAre(6000, 11000, 16000));
  EXPECT_THAT(cluster.TimesAt(1), ElementsAre(6000, 11000, 16000));
}

TEST(SimNetworkTest, SlowReceiverDoesNotHoldItsSenderBack) {
  ScriptedCluster cluster({{1e9, Ns(1000)}, {0.25e9, Ns(1000)}, {1e9, Ns(1000)}});
  cluster.SendAtStart(0, {Message(1, 5000), Message(2, 5000), Message(1, 5000)});
  cluster.runtime.Run(kForever);
  EXPECT_THAT(cluster.TimesAt(1), ElementsAre(21000, 41000));
  EXPECT_THAT(cluster.TimesAt(2), ElementsAre(11000));
}

TEST(SimNetworkTest, SlowSenderLeavesTheReceiverToOthers) {
  ScriptedCluster cluster({{0.25e9, Ns(1000)}, {1e9, Ns(1000)}, {1e9, Ns(1000)}});
  // Alone: 1000 + 20000, of which the last 5000 pass the receiver's ingress.
  cluster.SendAtStart(0, {Message(2, 5000, 0, 0)});
  cluster.scripts[1]->on_start = [](Outbox& outbox) {
    outbox.SetTimer(1, Ns(0));
    outbox.SetTimer(2, Ns(14000));
  };
  cluster.scripts[1]->on_timer = [](TimerId id, Outbox& outbox) {
    outbox.Send(Message(2, 5000, 0, static_cast<uint32_t>(id)));
  };
  cluster.runtime.Run(kForever);
  EXPECT_THAT(cluster.Chunks(), ElementsAre(1, 2, 0));
  EXPECT_THAT(cluster.TimesAt(2), ElementsAre(6000, 20000, 25000));
}

TEST(SimNetworkTest, UrgentEnvelopesOvertakeInTheQueueButDoNotPreempt) {
  ScriptedCluster cluster(2);
  cluster.SendAtStart(0, {Message(1, 9000, 5, 0), Message(1, 9000, 3, 1), Message(1, 10, 7, 2),
                          Message(1, 10, 3, 3), Message(1, 10, kControlPriority, 4)});
  cluster.runtime.Run(kForever);
  EXPECT_THAT(cluster.Chunks(), ElementsAre(0, 4, 1, 3, 2));
}

TEST(SimNetworkTest, NothingOvertakesWhatIsInTheSendBuffer) {
  ScriptedCluster cluster(std::vector<NicSpec>(2, NicSpec{1e9, Ns(1000), 10000}));
  // The first leaves at once, the next two fit into the buffer.
  cluster.SendAtStart(0, {Message(1, 5000, 5, 0), Message(1, 5000, 5, 1), Message(1, 5000, 5, 2),
                          Message(1, 5000, 5, 3), Message(1, 10, 0, 4)});
  cluster.runtime.Run(kForever);
  EXPECT_THAT(cluster.Chunks(), ElementsAre(0, 1, 2, 4, 3));
}

TEST(SimNetworkTest, SendBufferTakesOneEnvelopeOfAnySize) {
  ScriptedCluster cluster(std::vector<NicSpec>(2, NicSpec{1e9, Ns(1000), 1}));
  cluster.SendAtStart(0, {Message(1, 5000, 5, 0), Message(1, 5000, 5, 1), Message(1, 5000, 5, 2),
                          Message(1, 10, 0, 3)});
  cluster.runtime.Run(kForever);
  EXPECT_THAT(cluster.Chunks(), ElementsAre(0, 1, 3, 2));
}

TEST(SimNetworkTest, ConnectionsWithSendBuffersGetEqualShares) {
  ScriptedCluster cluster(std::vector<NicSpec>(3, NicSpec{1e9, Ns(1000), 10000}));
  cluster.SendAtStart(0, {Message(1, 5000), Message(1, 5000), Message(1, 5000), Message(1, 5000),
                          Message(2, 2500, 9), Message(2, 2500, 9), Message(2, 5000, 9)});
  cluster.runtime.Run(kForever);
  // Each has half of the link until the second has nothing left.
  EXPECT_THAT(cluster.TimesAt(1), ElementsAre(11000, 21000, 26000, 31000));
  EXPECT_THAT(cluster.TimesAt(2), ElementsAre(6000, 11000, 21000));
}

// Whatever the buffers, all of it arrives, and a sender that has something to send does.
TEST(SimNetworkTest, SendBuffersLoseNothingAndNoTime) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    const int64_t buffer = 1 + static_cast<int64_t>(random.Next() % 100000);
    ScriptedCluster cluster(std::vector<NicSpec>(4, NicSpec{1e9, Ns(1000), buffer}));
    std::vector<Envelope> envelopes;
    int64_t bytes = 0;
    for (uint32_t k = 0; k < 200; ++k) {
      const auto size = 1 + static_cast<int64_t>(random.Next() % 20000);
      envelopes.push_back(Message(1 + static_cast<int>(random.Next() % 3), size,
                                  static_cast<int>(random.Next() % 4), k));
      bytes += size;
    }
    cluster.SendAtStart(0, envelopes);
    EXPECT_EQ(cluster.runtime.Run(kForever), Ns(1000 + bytes)) << "seed " << seed;
    std::vector<uint32_t> chunks = cluster.Chunks();
    std::sort(chunks.begin(), chunks.end());
    ASSERT_EQ(chunks.size(), envelopes.size()) << "seed " << seed;
    for (uint32_t k = 0; k < chunks.size(); ++k) ASSERT_EQ(chunks[k], k) << "seed " << seed;
  }
}

TEST(SimNetworkTest, KilledNodesLoseTheirSendBuffers) {
  ScriptedCluster cluster(std::vector<NicSpec>(2, NicSpec{1e9, Ns(1000), 10000}));
  cluster.AddWorker(0);
  cluster.SendAtStart(0, std::vector<Envelope>(5, Message(1, 5000)));
  cluster.SendAtStart(2, {Message(1, 5000)});
  cluster.runtime.At(Ns(1), [&] { cluster.runtime.Kill(0); });
  cluster.runtime.Run(kForever);
  // What had begun to leave the one that was killed shares the link with what the other sends.
  EXPECT_THAT(cluster.TimesAt(1), ElementsAre(11000, 11000));
  EXPECT_EQ(cluster.runtime.statistics().lost, 4);
}

TEST(SimNetworkTest, NodesOfAMachineShareItsNicAndDoNotUseItAmongThemselves) {
  ScriptedCluster cluster(3);
  cluster.AddWorker(0);
  cluster.SendAtStart(0, {Message(3, 5000, 0, 1), Message(3, 10, -5, 2), Message(1, 5000)});
  cluster.SendAtStart(3, {Message(2, 5000)});
  cluster.runtime.Run(kForever);
  EXPECT_THAT(cluster.TimesAt(3), ElementsAre(0, 0));
  EXPECT_EQ(cluster.arrivals[0].envelope.chunk, 1u);
  EXPECT_THAT(cluster.TimesAt(1), ElementsAre(6000));
  EXPECT_THAT(cluster.TimesAt(2), ElementsAre(11000));
  EXPECT_EQ(cluster.runtime.statistics().envelopes, 4);
}

// The network, against a slow and simple model that knows all envelopes in advance.

struct Sending {
  int64_t time;
  int from, to;
  int64_t size;
  int priority;
  int64_t ready = 0, ingress_time = 0, arrival = 0;
};

int64_t CeilDivide(int64_t bytes, double goodput) {
  const int64_t rate = static_cast<int64_t>(goodput / 1e6);  // bytes a microsecond, whole
  return (bytes * 1000 + rate - 1) / rate;
}

void Predict(const std::vector<NicSpec>& nics, std::vector<Sending>* sendings) {
  for (size_t machine = 0; machine < nics.size(); ++machine) {
    std::vector<Sending*> waiting;
    for (Sending& sending : *sendings) {
      if (sending.from == static_cast<int>(machine)) waiting.push_back(&sending);
    }
    for (int64_t now = 0; !waiting.empty();) {
      auto next = waiting.end();
      for (auto i = waiting.begin(); i != waiting.end(); ++i) {
        if ((*i)->time > now) continue;
        if (next == waiting.end() || (*i)->priority < (*next)->priority) next = i;
      }
      if (next == waiting.end()) {
        now = waiting.front()->time;
        continue;
      }
      Sending& sending = **next;
      const int64_t egress_time = CeilDivide(sending.size, nics[machine].goodput_bytes_per_second);
      sending.ingress_time = CeilDivide(sending.size, nics[sending.to].goodput_bytes_per_second);
      sending.ready = now + nics[machine].latency.count() +
                      std::max<int64_t>(0, egress_time - sending.ingress_time);
      now += egress_time;
      waiting.erase(next);
    }
  }
  std::vector<Sending*> by_ready;
  for (Sending& sending : *sendings) by_ready.push_back(&sending);
  std::sort(by_ready.begin(), by_ready.end(),
            [](const Sending* a, const Sending* b) { return a->ready < b->ready; });
  std::vector<int64_t> ingress_free(nics.size(), 0);
  for (Sending* sending : by_ready) {
    int64_t& free = ingress_free[sending->to];
    free = sending->arrival = std::max(free, sending->ready) + sending->ingress_time;
  }
}

TEST(SimNetworkTest, RandomTrafficArrivesWhenTheModelSays) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Random random(seed);
    const auto below = [&random](uint64_t limit) {
      return static_cast<int>(random.Next() % limit);
    };
    std::vector<NicSpec> nics(2 + below(8));
    for (NicSpec& nic : nics) nic = {1e6 * (100 + below(2000)), Ns(below(20000))};
    std::vector<Sending> sendings(300);
    for (Sending& sending : sendings) {
      sending.time = 1 + below(2000000);
      sending.from = below(nics.size());
      sending.to = (sending.from + 1 + below(nics.size() - 1)) % static_cast<int>(nics.size());
      sending.size = 1 + below(40000);
      sending.priority = below(4);
    }
    std::sort(sendings.begin(), sendings.end(),
              [](const Sending& a, const Sending& b) { return a.time < b.time; });

    ScriptedCluster cluster(nics);
    for (size_t i = 0; i < nics.size(); ++i) {
      cluster.scripts[i]->on_start = [&sendings, i](Outbox& outbox) {
        for (size_t k = 0; k < sendings.size(); ++k) {
          if (sendings[k].from == static_cast<int>(i)) outbox.SetTimer(k, Ns(sendings[k].time));
        }
      };
      cluster.scripts[i]->on_timer = [&sendings](TimerId k, Outbox& outbox) {
        const Sending& sending = sendings[k];
        outbox.Send(Message(sending.to, sending.size, sending.priority, static_cast<uint32_t>(k)));
      };
    }
    cluster.runtime.Run(kForever);

    Predict(nics, &sendings);
    ASSERT_EQ(cluster.arrivals.size(), sendings.size()) << "seed " << seed;
    std::vector<int64_t> last(nics.size(), 0);
    for (const Arrival& arrival : cluster.arrivals) {
      Sending& sending = sendings[arrival.envelope.chunk];
      ASSERT_EQ(arrival.time, sending.arrival) << "seed " << seed;
      ASSERT_EQ(arrival.to, sending.to);
      ASSERT_GE(arrival.time - last[arrival.to], sending.ingress_time) << "over goodput";
      last[arrival.to] = arrival.time;
      sending.arrival = -1;  // a second one would not match
    }
  }
}

// Faults.

TEST(SimFaultsTest, HappenAsOftenAsAsked) {
  SimOptions options;
  options.faults = {.drop = 0.1, .duplicate = 0.2, .delay = 0.5, .max_delay = Ns(1000000)};
  options.fault_filter = [](const Envelope& envelope) { return envelope.chunk == 1; };
  ScriptedCluster cluster(std::vector<NicSpec>(2, {1e12, Ns(0)}), options);
  constexpr int kCount = 20000;
  std::vector<Envelope> envelopes(kCount, Message(1, 1000, 0, 1));
  envelopes.insert(envelopes.end(), kCount, Message(1, 1000, 0, 2));
  cluster.SendAtStart(0, envelopes);
  cluster.runtime.Run(kForever);

  // Five standard deviations of a binomial distribution.
  const SimStatistics& statistics = cluster.runtime.statistics();
  EXPECT_NEAR(statistics.dropped, 0.1 * kCount, 5 * 42);
  EXPECT_NEAR(statistics.duplicated, 0.9 * 0.2 * kCount, 5 * 54);
  EXPECT_EQ(statistics.envelopes, 2 * kCount - statistics.dropped + statistics.duplicated);
  int64_t spared = 0, late = 0;
  for (const Arrival& arrival : cluster.arrivals) {
    spared += arrival.envelope.chunk == 2;
    // All have left after 40,000 ns, so that only a delay explains what comes later.
    late += arrival.time > 50000;
    EXPECT_LT(arrival.time, 50000 + 2 * 1000000);
  }
  EXPECT_EQ(spared, kCount);
  // Delays are uniform, so 95% of them are seen; so are duplicates of what was not delayed.
  EXPECT_NEAR(late, 0.95 * kCount * 0.9 * (0.5 + 0.2), 0.02 * kCount);
}

// A hash of all that happens in a cluster of chattering nodes.
uint64_t TraceHash(uint64_t seed) {
  SimOptions options;
  options.seed = seed;
  options.faults = {.drop = 0.02, .duplicate = 0.02, .delay = 0.1, .max_delay = Ns(100000)};
  ScriptedCluster cluster(std::vector<NicSpec>(8, {1e9, Ns(1000)}), options);
  uint64_t hash = 14695981039346656037u;  // FNV-1a's
  const auto note = [&hash](int64_t value) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 1099511628211u;
  };
  for (int i = 0; i < 8; ++i) {
    cluster.scripts[i]->on_start = [i](Outbox& outbox) {
      for (int k = 1; k < 8; ++k) outbox.Send(Message((i + k) % 8, 1000, k));
      outbox.SetTimer(1, Ns(100 * i));
    };
    cluster.scripts[i]->on_timer = [i](TimerId, Outbox& outbox) {
      outbox.Send(Message((i + 1) % 8, 5000, -1));
      outbox.SetTimer(1, Ns(30000));
    };
    cluster.scripts[i]->on_message = [i, note](const Envelope& envelope, Outbox& outbox) {
      for (int64_t value : {outbox.now.count(), int64_t{i}, int64_t{envelope.from.node.rank}}) {
        note(value);
      }
      if (envelope.priority >= 0) {
        outbox.Send(Message((i + envelope.priority % 7 + 1) % 8, 2000, envelope.priority));
      }
    };
  }
  cluster.runtime.Run(Ns(5000000));
  EXPECT_GT(cluster.runtime.statistics().events, 5000);
  note(cluster.runtime.statistics().events);
  return hash;
}

TEST(SimFaultsTest, SameSeedSameRun) {
  EXPECT_EQ(TraceHash(1), TraceHash(1));
  EXPECT_NE(TraceHash(1), TraceHash(2));
}

TEST(SimFaultsTest, RejectsWhatIsNoProbability) {
  SimOptions options;
  options.faults.drop = 1.5;
  try {
    SimRuntime runtime(options);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("fault 'drop' is 1.5"));
  }
}

}  // namespace
}  // namespace poseidon
