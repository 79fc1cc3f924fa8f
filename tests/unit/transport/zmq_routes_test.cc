// Where a peer is reached changes, and what is on its way there.
#include <gtest/gtest.h>

#include <chrono>

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

}  // namespace
}  // namespace poseidon
