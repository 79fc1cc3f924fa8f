// Where a peer is reached changes, and what is on its way there.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>

#include "core/steady_now.h"
#include "tests/unit/transport/zmq_testing.h"

namespace poseidon {
namespace {

TEST(ZmqRuntime, FollowsAPeerToItsNewEndpoint) {
  auto nodes = MakeNodes(3, Lanes(0));
  for (auto& node : nodes) {
    node->Attach(kControlLane, Forwarder());
    node->Start();
  }
  nodes[0]->Post(Gradient(WorkerLane(1, kControlLane), {}));
  EXPECT_TRUE(nodes[1]->mailbox().Take(kPatience));
  nodes[0]->SetRoute(WorkerLane(1, kControlLane), nodes[2]->endpoint(kControlLane));
  nodes[0]->Post(Gradient(WorkerLane(1, kControlLane), {}));
  EXPECT_TRUE(nodes[2]->mailbox().Take(kPatience));
  EXPECT_FALSE(nodes[1]->mailbox().Take(Duration(0)));
}

// A peer that takes nothing dies; its successor gets nothing of what queued for it.
TEST(ZmqRuntime, DropsWhatQueuesWhenAnActorSaysSo) {
  ZmqOptions options = Lanes(1);
  options.window_bytes = 1 << 20;
  auto nodes = MakeNodes(3, options);
  const Address to = WorkerLane(1, kFirstDataLane);
  nodes[2]->Attach(kFirstDataLane, Forwarder());
  nodes[0]->Start();
  nodes[2]->Start();
  const Payload body = Payload::FromString(std::string(1 << 20, 'x'));
  for (int i = 0; i < 100; ++i) {
    Envelope bulk = Gradient(to, body, i);
    nodes[0]->Post(std::move(bulk));
  }
  auto dropper = std::make_unique<FunctionActor>();
  dropper->on_start = [](Outbox& outbox) { outbox.drop_queued = true; };
  nodes[0]->Attach(kFirstDataLane, std::move(dropper));
  nodes[0]->SetRoute(to, nodes[2]->endpoint(kFirstDataLane));
  Envelope last = Gradient(to, {}, 100);
  nodes[0]->Post(std::move(last));
  const std::optional<Envelope> first = nodes[2]->mailbox().Take(kPatience);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->iteration, 100);
}

// What is told of is a connection that has been there for as long as may pass without a word from
// the other machine, and ends: a peer that is only silent is not lost, and one that closes a
// connection sooner has done so itself. (A link that is cut:
// tests/integration/recovery/cut_network_test.py.)
TEST(ZmqRuntime, TellsOfALostConnectionToWhoeverWatchesIt) {
  constexpr std::chrono::milliseconds kLostAfter(50);
  auto nodes = MakeNodes(3, Lanes(0));
  const std::string endpoints[] = {nodes[1]->endpoint(kControlLane),
                                   nodes[2]->endpoint(kControlLane)};
  auto watching = std::make_unique<FunctionActor>();
  watching->on_start = [&](Outbox& outbox) {
    outbox.routes.push_back({WorkerLane(1, kControlLane), endpoints[0], kLostAfter, true});
    outbox.routes.push_back(
        {WorkerLane(2, kControlLane), endpoints[1], std::chrono::hours(1), true});
    for (const int rank : {1, 2}) outbox.Send(Gradient(WorkerLane(rank, kControlLane), {}));
  };
  watching->on_message = [](const Envelope& envelope, Outbox& outbox) {
    outbox.Send(envelope);
    outbox.messages.back().to = Here(kApplicationLane);
    outbox.messages.back().chunk = static_cast<uint32_t>(envelope.from.node.rank);
  };
  nodes[0]->Attach(kControlLane, std::move(watching));
  for (int rank : {1, 2}) nodes[rank]->Attach(kControlLane, Forwarder());
  for (auto& node : nodes) node->Start();
  for (int rank : {1, 2}) ASSERT_TRUE(nodes[rank]->mailbox().Take(kPatience));
  EXPECT_FALSE(nodes[0]->mailbox().Take(5 * kLostAfter)) << "a silent peer is not lost";
  nodes[2]->Stop();
  nodes[1]->Stop();
  const auto lost = nodes[0]->mailbox().Take(kPatience);
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->kind, MessageKind::kConnectionLost);
  EXPECT_EQ(lost->chunk, 1u);
  EXPECT_FALSE(nodes[0]->mailbox().Take(Duration(0)));
}

// A route is all lanes', and the one that sends there makes the connection.
TEST(ZmqRuntime, TellsOfALostConnectionWhereAnotherLaneHasSetTheRoute) {
  constexpr std::chrono::milliseconds kLostAfter(50);
  auto nodes = MakeNodes(2, Lanes(0));
  const Address to = WorkerLane(1, kHeartbeatLane);
  auto setting = std::make_unique<FunctionActor>();
  setting->on_start = [&](Outbox& outbox) {
    outbox.routes.push_back({to, nodes[1]->endpoint(kHeartbeatLane), kLostAfter, true});
    auto sending = std::make_unique<FunctionActor>();
    sending->on_start = [&](Outbox& sends) { sends.Send(Gradient(to, {})); };
    sending->on_message = [](const Envelope& envelope, Outbox& sends) {
      sends.Send(envelope);
      sends.messages.back().to = Here(kApplicationLane);
    };
    outbox.Attach(kHeartbeatLane, std::move(sending));
  };
  nodes[0]->Attach(kControlLane, std::move(setting));
  nodes[1]->Attach(kHeartbeatLane, Forwarder());
  for (auto& node : nodes) node->Start();
  ASSERT_TRUE(nodes[1]->mailbox().Take(kPatience));
  EXPECT_FALSE(nodes[0]->mailbox().Take(5 * kLostAfter)) << "a silent peer is not lost";
  nodes[1]->Stop();
  const auto lost = nodes[0]->mailbox().Take(kPatience);
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->kind, MessageKind::kConnectionLost);
  EXPECT_EQ(lost->from.lane, kHeartbeatLane);
}

// Counts, and knows the time of the last.
struct CountingDeparture : Departure {
  void Left(Time when) override {
    last = when;
    ++count;
  }
  std::atomic<Time> last{};
  std::atomic<int> count{};
};

TEST(ZmqRuntime, TellsWhenEnvelopesHaveLeft) {
  ZmqOptions options = Lanes(1);
  options.window_bytes = 1 << 20;
  auto nodes = MakeNodes(2, options);
  nodes[1]->Attach(kFirstDataLane, Forwarder());
  for (auto& node : nodes) node->Start();
  const auto departure = std::make_shared<CountingDeparture>();
  const Time before = SteadyNow();
  // A copied body, one that is not, and none.
  for (const size_t size : {size_t{1000}, size_t{8} << 20, size_t{0}}) {
    Envelope envelope =
        Gradient(WorkerLane(1, kFirstDataLane), Payload::FromString(std::string(size, 'x')));
    envelope.departure = departure;
    nodes[0]->Post(std::move(envelope));
  }
  for (int i = 0; i < 3; ++i) {
    const auto arrived = nodes[1]->mailbox().Take(kPatience);
    ASSERT_TRUE(arrived);
    EXPECT_EQ(arrived->departure, nullptr);
  }
  EXPECT_TRUE(Eventually([&] { return departure->count == 3; }));
  EXPECT_GT(departure->last.load(), before);
  EXPECT_LE(departure->last.load(), SteadyNow());
  EXPECT_TRUE(Eventually([&] { return departure.use_count() == 1; }));
}

TEST(ZmqRuntime, OutlivesARouteToNowhere) {
  auto nodes = MakeNodes(2, Lanes(0));
  for (auto& node : nodes) {
    node->Attach(kControlLane, Forwarder());
    node->Start();
  }
  nodes[0]->SetRoute(WorkerLane(2, kControlLane), "not an endpoint");
  nodes[0]->Post(Gradient(WorkerLane(2, kControlLane), {}));
  EXPECT_TRUE(Eventually([&] { return nodes[0]->counters().unroutable == 1; }));
  nodes[0]->SetRoute(WorkerLane(2, kControlLane), nodes[1]->endpoint(kControlLane));
  nodes[0]->Post(Gradient(WorkerLane(2, kControlLane), {}));
  EXPECT_TRUE(nodes[1]->mailbox().Take(kPatience));
  EXPECT_FALSE(nodes[0]->mailbox().Take(Duration(0)));
}

// From here on this process can open no file that it has not opened yet, until the end.
class NoMoreFiles {
 public:
  NoMoreFiles() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = dup(STDERR_FILENO);
    close(next);
    rlimit none = before_;
    none.rlim_cur = static_cast<rlim_t>(next);
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreFiles() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_{};
};

TEST(ZmqRuntime, APeerIsReachedOnceThereAreFilesForItAgain) {
  auto nodes = MakeNodes(2, Lanes(1));
  const Address to = WorkerLane(1, kFirstDataLane);
  nodes[1]->Attach(kFirstDataLane, Forwarder());
  for (auto& node : nodes) node->Start();
  {
    const NoMoreFiles shortage;
    nodes[0]->Post(Gradient(to, {}, 1));
    ASSERT_TRUE(Eventually([&] { return nodes[0]->counters().queued_frames == 1; }));
  }
  const std::optional<Envelope> first = nodes[1]->mailbox().Take(kPatience);
  ASSERT_TRUE(first) << "nobody has tried again";
  EXPECT_EQ(first->iteration, 1);
  EXPECT_EQ(nodes[0]->counters().unroutable, 0);
}

// A node that has been reached, or might have been, says that it is where nobody can be: the actor
// that speaks to it goes on, and reaches it when it says where it is.
TEST(ZmqRuntime, OutlivesAKnownPeersMoveToNowhere) {
  auto nodes = MakeNodes(3, Lanes(0));
  const Address speaker = WorkerLane(0, kControlLane);
  const Address moved = WorkerLane(1, kControlLane);
  nodes[0]->Attach(kControlLane, OnMessage([&](const Envelope& envelope, Outbox& outbox) {
                     outbox.Send(envelope);
                     outbox.messages.back().to = moved;
                   }));
  nodes[1]->Attach(kControlLane, Forwarder());
  for (auto& node : nodes) node->Start();
  nodes[2]->Post(Gradient(speaker, {}));
  EXPECT_TRUE(nodes[1]->mailbox().Take(kPatience));

  nodes[0]->SetRoute(moved, "not an endpoint");
  // Longer than a socket is kept that takes nothing.
  const Time begin = SteadyNow();
  while (SteadyNow() - begin < Seconds(2)) {
    nodes[2]->Post(Gradient(speaker, {}));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_FALSE(nodes[0]->mailbox().Take(Duration(0))) << "the lane has failed";
  nodes[0]->SetRoute(moved, nodes[1]->endpoint(kControlLane));
  nodes[2]->Post(Gradient(speaker, {}));
  EXPECT_TRUE(nodes[1]->mailbox().Take(kPatience));
}

}  // namespace
}  // namespace poseidon
