// Work that actors leave: in which order its slices are carried out, and how messages come between
// them in both runtimes.
#include "transport/work_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "proto/wire.pb.h"
#include "tests/unit/transport/sim_testing.h"
#include "tests/unit/transport/zmq_testing.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

using Log = std::vector<std::string>;

// `slices` slices of `name`, 10 floats each.
SlicedArithmetic Part(const std::string& name, int64_t slices, Log* log) {
  const auto run = [name, log](int64_t slice) { log->push_back(name + std::to_string(slice)); };
  return {slices, {.updated = 10.0 * static_cast<double>(slices)}, run};
}

Work Named(const std::string& name, int priority, std::vector<int64_t> parts, Log* log) {
  Work work;
  work.priority = priority;
  for (const int64_t slices : parts) work.parts.push_back(Part(name, slices, log));
  work.done = [name, log](Outbox&) { log->push_back(name + " done"); };
  return work;
}

TEST(WorkQueueTest, TheMostUrgentWorkGoesFirst) {
  Log log;
  WorkQueue queue;
  Outbox outbox;
  const auto run = [&] {
    if (const auto done = queue.RunSlice()) done(outbox);
  };
  queue.Add({Named("b", 2, {2}, &log), Named("c", 2, {0, 1, 0}, &log)});
  EXPECT_EQ(queue.NextSlice().updated, 10);
  EXPECT_EQ(queue.Left().updated, 20);
  run();
  EXPECT_EQ(queue.Left().updated, 10);
  queue.Add({Named("a", 1, {1, 2}, &log), Named("none", 3, {}, &log)});
  EXPECT_EQ(queue.Left().updated, 30);
  while (!queue.empty()) run();
  EXPECT_THAT(log, ElementsAre("b0", "a0", "a0", "a1", "a done", "b1", "b done", "c0", "c done",
                               "none done"));
}

// A nanosecond for each float updated, and one for each byte of a message.
SimOptions Rates() {
  SimOptions options;
  options.processing = [](const Envelope& envelope) {
    return Duration(static_cast<int64_t>(envelope.body.size()));
  };
  options.arithmetic = [](const ArithmeticAmount& amount) {
    return Duration(static_cast<int64_t>(amount.updated));
  };
  return options;
}

using sim_testing::Ns;

TEST(SimWorkTest, MessagesWaitForNoMoreThanATurn) {
  constexpr int64_t kSlice = 250'000;
  sim_testing::ScriptedCluster cluster(std::vector<NicSpec>(2, NicSpec{1e12, Ns(0)}), Rates());
  std::vector<int64_t> messages;
  int64_t done = 0;
  cluster.scripts[1]->on_start = [&](Outbox& outbox) {
    outbox.work.push_back({.parts = {{40, {.updated = 40.0 * kSlice}, {}}},
                           .done = [&](Outbox& later) { done = later.now.count(); }});
  };
  cluster.scripts[1]->on_message = [&](const Envelope&, Outbox& outbox) {
    messages.push_back(outbox.now.count());
  };
  for (const int64_t time : {100'000, 2'999'999, 3'000'001}) {
    cluster.runtime.At(Ns(time), [&cluster] {
      cluster.Attach(0, sim_testing::kLane)->on_start = [](Outbox& outbox) {
        outbox.Send(sim_testing::Message(1, 1000));
      };
    });
  }
  cluster.runtime.Run(sim_testing::kForever);
  // Behind the turns that end after 1, 3.001 and 4.002 ms; each message makes what follows later.
  EXPECT_THAT(messages, ElementsAre(1'001'000, 3'002'000, 3'003'000));
  EXPECT_EQ(done, 10'003'000);
}

TEST(SimWorkTest, IsCarriedOutAtOnceWhereItTakesNoTimeOrItsActorIsReplaced) {
  for (const SimOptions& options : {SimOptions{}, Rates()}) {
    sim_testing::ScriptedCluster cluster(std::vector<NicSpec>(1, NicSpec{1e9, Ns(0)}), options);
    Log log;
    cluster.scripts[0]->on_start = [&](Outbox& outbox) {
      outbox.work.push_back(Named("a", 0, {3}, &log));
      outbox.work.back().parts[0].amount.updated = 1e9;
    };
    cluster.runtime.At(Ns(5), [&] { cluster.Attach(0, sim_testing::kLane); });
    cluster.runtime.Run(Ns(10));
    EXPECT_THAT(log, ElementsAre("a0", "a1", "a2", "a done"));
  }
}

TEST(SimWorkTest, DiesWithItsNode) {
  sim_testing::ScriptedCluster cluster(std::vector<NicSpec>(1, NicSpec{1e9, Ns(0)}), Rates());
  Log log;
  cluster.scripts[0]->on_start = [&](Outbox& outbox) {
    outbox.work.push_back(Named("a", 0, {3}, &log));
  };
  cluster.runtime.At(Ns(5), [&] { cluster.runtime.Kill(0); });
  cluster.runtime.Run(sim_testing::kForever);
  EXPECT_THAT(log, IsEmpty());
}

// Work goes on only when the message before it was handled, so that this needs no times: each slice
// posts a message to its own lane, and that comes before the next slice.
TEST(ZmqWorkTest, MessagesComeBetweenSlices) {
  ZmqRuntime node({Role::kWorker, 0}, Lanes(1));
  Log log;
  auto actor = std::make_unique<FunctionActor>();
  actor->on_start = [&](Outbox& outbox) {
    Work work = Named("a", 0, {3}, &log);
    work.parts[0].run = [&](int64_t slice) {
      log.push_back("slice " + std::to_string(slice));
      node.Post(Gradient(Here(kFirstDataLane), {}, slice));
    };
    work.done = [&](Outbox& later) { later.Send(Gradient(Here(kApplicationLane), {})); };
    outbox.work.push_back(std::move(work));
  };
  actor->on_message = [&](const Envelope& envelope, Outbox&) {
    log.push_back("message " + std::to_string(envelope.iteration));
  };
  node.Attach(kFirstDataLane, std::move(actor));
  node.Start();
  ASSERT_TRUE(node.mailbox().Take(kPatience));
  node.Stop();
  log.resize(5);  // the last message is handled, or not, when the node stops
  EXPECT_THAT(log, ElementsAre("slice 0", "message 0", "slice 1", "message 1", "slice 2"));
}

TEST(ZmqWorkTest, IsDoneBeforeAnotherActorTakesTheLane) {
  ZmqRuntime node({Role::kWorker, 0}, Lanes(1));
  Log log;
  auto first = std::make_unique<FunctionActor>();
  first->on_start = [&](Outbox& outbox) { outbox.work.push_back(Named("a", 0, {2}, &log)); };
  auto second = std::make_unique<FunctionActor>();
  second->on_start = [&](Outbox& outbox) {
    log.push_back("next");
    outbox.Send(Gradient(Here(kApplicationLane), {}));
  };
  node.Attach(kFirstDataLane, std::move(first));
  node.Attach(kFirstDataLane, std::move(second));
  node.Start();
  ASSERT_TRUE(node.mailbox().Take(kPatience));
  EXPECT_THAT(log, ElementsAre("a0", "a1", "a done", "next"));
}

TEST(ZmqWorkTest, ThatThrowsIsTheActorsFailure) {
  ZmqRuntime node({Role::kWorker, 0}, Lanes(1));
  auto actor = std::make_unique<FunctionActor>();
  actor->on_start = [](Outbox& outbox) {
    outbox.work.push_back(
        {.parts = {}, .done = [](Outbox&) { throw std::runtime_error("too much"); }});
  };
  node.Attach(kFirstDataLane, std::move(actor));
  node.Start();
  const auto failed = node.mailbox().Take(kPatience);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->kind, MessageKind::kFailed);
  wire::End end;
  ASSERT_TRUE(end.ParseFromString(failed->body.ToString()));
  EXPECT_EQ(end.reason(), "too much");
}

}  // namespace
}  // namespace poseidon
