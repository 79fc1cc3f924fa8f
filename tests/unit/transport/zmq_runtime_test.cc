// ZmqRuntime on real sockets of this machine: what arrives, in which order, and how it ends.
#include "transport/zmq/zmq_runtime.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "core/error.h"
#include "proto/wire.pb.h"
#include "tests/unit/transport/zmq_testing.h"

namespace poseidon {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::string RandomBytes(std::mt19937& random, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

uint32_t Checksum(std::span<const std::byte> bytes) {
  return std::accumulate(bytes.begin(), bytes.end(), uint32_t{1}, [](uint32_t sum, std::byte byte) {
    return sum * 31 + std::to_integer<uint32_t>(byte);
  });
}

// Every node sends to every lane of every node (itself too), by way of its own data lanes, gets all
// back and finds nothing changed.
TEST(ZmqRuntime, EchoesAnySizeOnEveryLane) {
  constexpr int kNodes = 3;
  constexpr int kDataLanes = 2;
  std::mt19937 random(7);
  std::vector<Payload> bodies;
  for (const size_t size : {0, 1, 33, 4095, 63 << 10, (64 << 10) - 1, 64 << 10, 1 << 20}) {
    bodies.push_back(Payload::FromString(RandomBytes(random, size)));
  }
  for (int i = 0; i < 24; ++i) {
    bodies.push_back(Payload::FromString(RandomBytes(random, random() % (100 << 10))));
  }
  ZmqOptions options = Lanes(kDataLanes);
  options.window_bytes = 256 << 10;
  auto nodes = MakeNodes(kNodes, options);
  for (auto& node : nodes) {
    for (int lane = 0; lane < kFirstDataLane + kDataLanes; ++lane) {
      // What comes from an application goes out to the others; what comes from a lane is either
      // new (even iteration), and goes back, or has returned.
      node->Attach(lane, OnMessage([&](const Envelope& envelope, Outbox& outbox) {
                     Envelope next = envelope;
                     next.iteration = envelope.iteration + 1;
                     if (envelope.iteration == 1) {
                       next.to = envelope.from;
                       outbox.Send(next);
                     } else if (envelope.iteration == 2) {
                       next.to = Here(kApplicationLane);
                       outbox.Send(next);
                     } else {
                       for (int rank = 0; rank < kNodes; ++rank) {
                         for (int to = 0; to < kFirstDataLane + kDataLanes; ++to) {
                           next.to = WorkerLane(rank, to);
                           outbox.Send(next);
                         }
                       }
                     }
                   }));
    }
    node->Start();
  }
  for (auto& node : nodes) {
    for (size_t i = 0; i < bodies.size(); ++i) {
      Envelope envelope =
          Gradient(Here(kFirstDataLane + static_cast<int>(i) % kDataLanes), bodies[i]);
      envelope.chunk = static_cast<uint32_t>(i);
      node->Post(envelope);
    }
  }
  const size_t expected = bodies.size() * kNodes * (kFirstDataLane + kDataLanes);
  for (auto& node : nodes) {
    for (size_t i = 0; i < expected; ++i) {
      const auto back = node->mailbox().Take(kPatience);
      ASSERT_TRUE(back);
      ASSERT_EQ(back->iteration, 3);
      ASSERT_EQ(back->body.size(), bodies.at(back->chunk).size());
      ASSERT_EQ(Checksum(back->body.bytes()), Checksum(bodies[back->chunk].bytes()));
    }
    EXPECT_FALSE(node->mailbox().Take(Duration(0)));
    EXPECT_EQ(node->counters().malformed_frames, 0);
    EXPECT_EQ(node->counters().unroutable, 0);
    EXPECT_EQ(node->counters().rejected_connections, 0);
    EXPECT_EQ(node->counters().frames_received, 2 * expected);
  }
}

// How many of this process' connections hold at most so many bytes that are not sent yet.
int ConnectionsThatLimitUnsent(int bytes) {
  int found = 0;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    int limit = 0;
    socklen_t size = sizeof(limit);
    const bool is_tcp = getsockopt(descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &limit, &size) == 0;
    found += is_tcp && limit == bytes ? 1 : 0;
  }
  return found;
}

TEST(ZmqRuntime, WhatAnUrgentFrameWaitsBehindIsLimitedOnDataLanes) {
  ZmqOptions options = Lanes(2);
  options.unsent_bytes = 54321;
  auto nodes = MakeNodes(2, options);
  for (auto& node : nodes) {
    for (int lane = 0; lane < kFirstDataLane + 2; ++lane) node->Attach(lane, Forwarder());
    node->Start();
  }
  // A connection is there at the latest when its first frame has arrived, and is set up when the
  // next one goes out.
  for (int round = 0; round < 2; ++round) {
    for (const int lane : {kControlLane, kFirstDataLane + 1}) {
      nodes[0]->Post(Gradient(WorkerLane(1, lane), {}));
      ASSERT_TRUE(nodes[1]->mailbox().Take(kPatience));
    }
  }
  EXPECT_EQ(ConnectionsThatLimitUnsent(54321), 1);
}

TEST(ZmqRuntime, SaysWhereEnvelopesComeFromAndGo) {
  auto nodes = MakeNodes(2, Lanes(1));
  nodes[1]->Attach(kFirstDataLane, Forwarder());
  nodes[0]->Attach(kControlLane, OnMessage([](const Envelope&, Outbox& outbox) {
                     outbox.identity = NodeId{Role::kServer, 5};
                     outbox.Send(Gradient(WorkerLane(1, kFirstDataLane), {}));
                     outbox.Send(Gradient(Here(kFirstDataLane), {}));
                   }));
  nodes[0]->Attach(kFirstDataLane, OnMessage([](const Envelope&, Outbox& outbox) {
                     outbox.Send(Gradient(WorkerLane(1, kFirstDataLane), {}));
                   }));
  for (auto& node : nodes) node->Start();
  nodes[0]->Post(Gradient(Here(kControlLane), {}));
  std::vector<Address> senders;
  for (int i = 0; i < 2; ++i) senders.push_back(nodes[1]->mailbox().Take(kPatience)->from);
  // The Forwarder is the last sender.
  EXPECT_EQ(senders[0], WorkerLane(1, kFirstDataLane));
  nodes[1]->Attach(kFirstDataLane, OnMessage([](const Envelope& envelope, Outbox& outbox) {
                     Envelope report;
                     report.to = Here(kApplicationLane);
                     report.body = Payload::FromString(envelope.from.ToString() + " to " +
                                                       envelope.to.ToString());
                     outbox.Send(report);
                   }));
  nodes[0]->Post(Gradient(Here(kControlLane), {}));
  std::vector<std::string> reports;
  for (int i = 0; i < 2; ++i) {
    reports.push_back(nodes[1]->mailbox().Take(kPatience)->body.ToString());
  }
  EXPECT_THAT(reports, ::testing::UnorderedElementsAre("server 5 control to worker 1 lane 0",
                                                       "server 5 lane 0 to worker 1 lane 0"));
  nodes[0]->Post(Gradient(WorkerLane(1, kFirstDataLane), {}));
  EXPECT_EQ(nodes[1]->mailbox().Take(kPatience)->body.ToString(),
            "server 5 application to worker 1 lane 0");
}

// A window's worth is on its way; of the rest the urgent goes first, and equals keep their order.
TEST(ZmqRuntime, SendsTheUrgentFirst) {
  ZmqOptions options = Lanes(1);
  options.window_bytes = 64 << 10;
  auto nodes = MakeNodes(2, options);
  nodes[0]->Attach(kFirstDataLane, OnMessage([](const Envelope&, Outbox& outbox) {
                     std::mt19937 random(3);
                     for (int i = 0; i < 300; ++i) {
                       outbox.Send(Gradient(WorkerLane(1, kFirstDataLane),
                                            Payload::FromString(std::string(3000, 'x')), i,
                                            static_cast<int>(random() % 5)));
                     }
                   }));
  nodes[1]->Attach(kFirstDataLane, Forwarder());
  for (auto& node : nodes) node->Start();
  nodes[0]->Post(Gradient(Here(kFirstDataLane), {}));
  std::vector<std::pair<int64_t, int64_t>> order;
  for (int i = 0; i < 300; ++i) {
    const auto envelope = nodes[1]->mailbox().Take(kPatience);
    ASSERT_TRUE(envelope);
    order.emplace_back(envelope->priority, envelope->iteration);
  }
  // All were queued before the first was sent.
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

// 160 MiB for a peer that takes 1 MiB every millisecond, and in their midst, when the kernel's
// buffers have grown, an urgent envelope: it overtakes all but what is in the window, in the
// kernel's buffers and in the receiver's queue.
TEST(ZmqRuntime, UrgentOvertakesWhatQueues) {
  constexpr int kBulk = 160;
  // Until then half are left to overtake, however late this thread has its turn.
  std::atomic<bool> posted{false};
  ZmqOptions options = Lanes(1);
  options.window_bytes = 1 << 20;
  auto nodes = MakeNodes(2, options);
  const Payload body = Payload::FromString(std::string(1 << 20, 'x'));
  nodes[1]->Attach(kFirstDataLane, OnMessage([&](const Envelope& envelope, Outbox& outbox) {
                     std::this_thread::sleep_for(milliseconds(1));
                     if (envelope.iteration == kBulk / 2) posted.wait(false);
                     outbox.Send(envelope);
                     outbox.messages.back().to = Here(kApplicationLane);
                   }));
  for (auto& node : nodes) node->Start();
  const Address to = WorkerLane(1, kFirstDataLane);
  for (int i = 0; i < kBulk; ++i) nodes[0]->Post(Gradient(to, body, i, 1));
  for (int i = 0; i < kBulk / 2; ++i) ASSERT_TRUE(nodes[1]->mailbox().Take(kPatience));
  nodes[0]->Post(Gradient(to, {}, kBulk, 0));
  posted = true;
  posted.notify_one();
  int before = 0;
  while (nodes[1]->mailbox().Take(kPatience)->iteration != kBulk) ++before;
  RecordProperty("frames_before_the_urgent_one", before);
  EXPECT_LT(before, kBulk / 4);
  for (int i = kBulk / 2 + before; i < kBulk; ++i) {
    EXPECT_TRUE(nodes[1]->mailbox().Take(kPatience));
  }
}

// An attachment made before "ready" is there when the answer to "ready" comes.
TEST(ZmqRuntime, AttachesBeforeTheFramesThatFollow) {
  auto nodes = MakeNodes(2, Lanes(1));
  nodes[1]->Attach(kControlLane, OnMessage([](const Envelope& envelope, Outbox& outbox) {
                     outbox.Send(Gradient(WorkerLane(0, kFirstDataLane), {}, envelope.iteration));
                   }));
  nodes[0]->Attach(kControlLane, OnMessage([](const Envelope& envelope, Outbox& outbox) {
                     const int64_t round = envelope.iteration;
                     // Only this round's actor answers to this round.
                     outbox.Attach(kFirstDataLane,
                                   OnMessage([round](const Envelope& frame, Outbox& out) {
                                     out.Send(frame);
                                     out.messages.back().to = Here(kApplicationLane);
                                     out.messages.back().chunk = frame.iteration == round;
                                   }));
                     outbox.Send(Gradient(WorkerLane(1, kControlLane), {}, round));
                   }));
  for (auto& node : nodes) node->Start();
  for (int round = 0; round < 300; ++round) {
    nodes[0]->Post(Gradient(Here(kControlLane), {}, round));
    const auto answer = nodes[0]->mailbox().Take(kPatience);
    ASSERT_TRUE(answer);
    ASSERT_EQ(answer->chunk, 1U);
  }
  EXPECT_EQ(nodes[0]->counters().malformed_frames, 0);
}

TEST(ZmqRuntime, FiresTimersInOrderMovesAndCancelsThem) {
  ZmqRuntime node({Role::kWorker, 0}, Lanes(0));
  auto actor = std::make_unique<FunctionActor>();
  Time start{};
  actor->on_start = [&start](Outbox& outbox) {
    start = outbox.now;
    outbox.SetTimer(1, milliseconds(40));
    outbox.SetTimer(2, milliseconds(20));
    outbox.SetTimer(3, milliseconds(5));
    outbox.SetTimer(4, milliseconds(5));
    outbox.SetTimer(5, milliseconds(1));
    outbox.SetTimer(6, milliseconds(1));
    outbox.SetTimer(5, milliseconds(30));  // moved
    outbox.CancelTimer(6);
    outbox.CancelTimer(99);  // was never set
  };
  actor->on_timer = [&start, again = false](TimerId timer, Outbox& outbox) mutable {
    Envelope report;
    report.to = Here(kApplicationLane);
    report.iteration = timer;
    report.epoch = static_cast<uint64_t>((outbox.now - start) / milliseconds(1));
    outbox.Send(report);
    if (timer == 1 && !again) {
      again = true;
      outbox.SetTimer(1, Duration(0));
    }
  };
  node.Attach(kHeartbeatLane, std::move(actor));
  node.Start();
  const std::vector<std::pair<TimerId, uint64_t>> expected = {{3, 5},  {4, 5},  {2, 20},
                                                              {5, 30}, {1, 40}, {1, 40}};
  for (const auto& [timer, at_least] : expected) {
    const auto fired = node.mailbox().Take(kPatience);
    ASSERT_TRUE(fired);
    EXPECT_EQ(fired->iteration, timer);
    EXPECT_GE(fired->epoch, at_least);
  }
  EXPECT_FALSE(node.mailbox().Take(milliseconds(20)));
}

TEST(ZmqRuntime, TakesPostsFromManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kEach = 2000;
  auto nodes = MakeNodes(2, Lanes(1));
  nodes[1]->Attach(kFirstDataLane, Forwarder());
  for (auto& node : nodes) node->Start();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&nodes, thread] {
      for (int i = 0; i < kEach; ++i) {
        Envelope envelope = Gradient(WorkerLane(1, kFirstDataLane), Payload::FromString("x"), i);
        envelope.bucket = static_cast<uint32_t>(thread);
        nodes[0]->Post(envelope);
      }
    });
  }
  std::vector<int64_t> next(kThreads, 0);
  for (int i = 0; i < kThreads * kEach; ++i) {
    const auto envelope = nodes[1]->mailbox().Take(kPatience);
    ASSERT_TRUE(envelope);
    EXPECT_EQ(envelope->iteration, next[envelope->bucket]++);
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ZmqRuntime, CountsWhatHasNoRoute) {
  ZmqRuntime node({Role::kWorker, 0}, Lanes(1));
  node.Start();
  node.Post(Gradient(WorkerLane(1, kFirstDataLane), Payload::FromString("x")));
  node.Post(Gradient(Here(kFirstDataLane), {}));  // no actor
  EXPECT_TRUE(Eventually([&] { return node.counters().unroutable == 2; }));
}

TEST(ZmqRuntime, NamesThePortInUse) {
  ZmqRuntime first({Role::kScheduler, 0}, Lanes(0));
  const std::string endpoint = first.endpoint(kControlLane);
  ZmqOptions options = Lanes(0);
  options.heartbeat_port = std::stoi(endpoint.substr(endpoint.rfind(':') + 1));
  try {
    ZmqRuntime second({Role::kScheduler, 0}, options);
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("cannot listen on port " + std::to_string(options.heartbeat_port)));
    EXPECT_THAT(error.what(), HasSubstr("another program listens on this port"));
  }
  options.bind_host = "192.0.2.1";  // of nobody
  EXPECT_THROW(ZmqRuntime({Role::kScheduler, 0}, options), ConfigError);
}

TEST(ZmqRuntime, ReportsAnActorThatThrows) {
  auto nodes = MakeNodes(2, Lanes(1));
  nodes[0]->Attach(kFirstDataLane, OnMessage([](const Envelope& envelope, Outbox& outbox) {
                     outbox.Send(Gradient(Here(kApplicationLane), {}));
                     if (envelope.iteration == 1) throw PeerLost("server 1 is gone");
                     throw std::logic_error("a mistake");
                   }));
  nodes[0]->Attach(
      kHeartbeatLane, OnMessage([](const Envelope&, Outbox& outbox) {
        outbox.Send(Gradient(WorkerLane(1, 0), Payload::FromString(std::string(2048, 'x'))));
      }));
  for (auto& node : nodes) node->Start();
  nodes[0]->Post(Gradient(Here(kFirstDataLane), {}, 1));
  nodes[0]->Post(Gradient(Here(kFirstDataLane), {}, 2));  // nobody is there any more
  const auto failed = nodes[0]->mailbox().Take(kPatience);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->kind, MessageKind::kFailed);
  EXPECT_EQ(failed->from, WorkerLane(0, kFirstDataLane));
  wire::End end;
  ASSERT_TRUE(end.ParseFromString(failed->body.ToString()));
  EXPECT_EQ(end.exit_code(), static_cast<int>(ExitCode::kPeerLost));
  EXPECT_EQ(end.reason(), "server 1 is gone");
  EXPECT_TRUE(Eventually([&] { return nodes[0]->counters().unroutable == 1; }));
  EXPECT_FALSE(nodes[0]->mailbox().Take(Duration(0)));
}

// As where it can't start a thread.
TEST(ZmqRuntime, WhatAnObserverThrowsKeepsNothingFromTheApplication) {
  auto nodes = MakeNodes(1, Lanes(1));
  nodes[0]->Observe([](const Envelope&) { throw std::runtime_error("no thread"); });
  nodes[0]->Attach(kFirstDataLane,
                   OnMessage([](const Envelope&, Outbox&) { throw PeerLost("server 1 is gone"); }));
  nodes[0]->Start();
  nodes[0]->Post(Gradient(Here(kFirstDataLane), {}));
  const auto failed = nodes[0]->mailbox().Take(kPatience);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->kind, MessageKind::kFailed);
  EXPECT_THAT(failed->body.ToString(), HasSubstr("server 1 is gone"));
}

TEST(ZmqRuntime, RefusesToSendWhatNoPeerWouldTake) {
  ZmqOptions options = Lanes(1);
  options.max_frame_bytes = 1024;
  auto nodes = MakeNodes(2, options);
  nodes[0]->Start();
  Envelope envelope = Gradient(WorkerLane(1, 0), Payload::FromString(std::string(2048, 'x')));
  for (const std::string advice : {"use smaller KV pairs", "use larger KV pairs"}) {
    nodes[0]->Post(envelope);
    const auto failed = nodes[0]->mailbox().Take(kPatience);
    ASSERT_TRUE(failed);
    EXPECT_EQ(failed->kind, MessageKind::kFailed);
    EXPECT_THAT(failed->body.ToString(), HasSubstr("frames are limited to 1024: " + advice));
    envelope.kind = MessageKind::kPlan;  // which has an entry for each
  }
}

TEST(ZmqRuntime, SendsTheLastWordsWhenItStops) {
  auto nodes = MakeNodes(2, Lanes(1));
  nodes[1]->Attach(kFirstDataLane, Forwarder());
  for (auto& node : nodes) node->Start();
  const auto owner = std::make_shared<std::string>(1 << 20, 'x');
  const Payload body = Payload::View(std::as_bytes(std::span(*owner)), owner);
  for (int i = 0; i < 40; ++i) nodes[0]->Post(Gradient(WorkerLane(1, kFirstDataLane), body, i));
  nodes[0]->Stop();
  EXPECT_EQ(owner.use_count(), 2);  // here and in `body`
  for (int i = 0; i < 40; ++i) EXPECT_TRUE(nodes[1]->mailbox().Take(kPatience)) << i;
  nodes[0]->Stop();
  nodes[0]->Post(Gradient(WorkerLane(1, kFirstDataLane), body));
  EXPECT_EQ(owner.use_count(), 2);
}

// Stops in the midst of traffic, with peers that were never there, and with one that does not read.
TEST(ZmqRuntime, StopsInTimeAndReleasesEverything) {
  ZmqOptions options = Lanes(1);
  options.linger = milliseconds(100);
  options.window_bytes = 1 << 20;
  auto nodes = MakeNodes(2, options);
  std::atomic<bool> stop_reading{false};
  nodes[1]->Attach(kFirstDataLane, OnMessage([&](const Envelope&, Outbox&) {
                     while (!stop_reading) std::this_thread::sleep_for(milliseconds(1));
                   }));
  nodes[0]->SetRoute(WorkerLane(7, kFirstDataLane), "tcp://127.0.0.1:1");  // nobody listens
  for (auto& node : nodes) node->Start();
  const auto owner = std::make_shared<std::string>(1 << 20, 'x');
  const Payload body = Payload::View(std::as_bytes(std::span(*owner)), owner);
  for (int i = 0; i < 100; ++i) {
    nodes[0]->Post(Gradient(WorkerLane(1, kFirstDataLane), body));
    nodes[0]->Post(Gradient(WorkerLane(7, kFirstDataLane), body));
  }
  std::this_thread::sleep_for(milliseconds(20));
  const auto start = std::chrono::steady_clock::now();
  nodes[0]->Stop();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(owner.use_count(), 2);
  stop_reading = true;
}

// A peer goes away in the midst of traffic and another process takes its endpoint: what is sent
// later arrives there, nothing hangs, and no frame is torn.
TEST(ZmqRuntime, ReachesAPeerThatStartsAgain) {
  ZmqOptions options = Lanes(0);
  options.linger = milliseconds(100);
  ZmqRuntime sender({Role::kWorker, 0}, options);
  sender.Start();
  const Payload body = Payload::FromString(std::string(300 << 10, 'x'));
  for (int life = 0; life < 4; ++life) {
    ZmqRuntime peer({Role::kWorker, 1}, options);
    if (life == 0) {
      const std::string endpoint = peer.endpoint(kControlLane);
      options.control_port = std::stoi(endpoint.substr(endpoint.rfind(':') + 1));
      sender.SetRoute(WorkerLane(1, kControlLane), endpoint);
    }
    peer.Attach(kControlLane, Forwarder());
    peer.Start();
    for (int i = 0; i < 50; ++i) {
      sender.Post(Gradient(WorkerLane(1, kControlLane), body, life, life == 3 ? -2 : 0));
    }
    std::optional<Envelope> envelope;
    do {
      envelope = peer.mailbox().Take(kPatience);
      ASSERT_TRUE(envelope);
      EXPECT_EQ(envelope->body.size(), body.size());
    } while (envelope->iteration != life);
    EXPECT_EQ(peer.counters().malformed_frames, 0);
  }
}

TEST(ZmqRuntime, SleepsWhenThereIsNothingToDo) {
  auto nodes = MakeNodes(2, Lanes(2));
  for (auto& node : nodes) {
    for (int lane = 0; lane < 4; ++lane) node->Attach(lane, Forwarder());
    node->Start();
  }
  nodes[0]->Post(Gradient(WorkerLane(1, kFirstDataLane), {}));
  ASSERT_TRUE(nodes[1]->mailbox().Take(kPatience));
  const auto processor_seconds = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
  };
  const double before = processor_seconds();
  std::this_thread::sleep_for(milliseconds(500));
  const double used = processor_seconds() - before;
  RecordProperty("idle_processor_microseconds", static_cast<int>(used * 1e6));
  EXPECT_LT(used, 0.05);
}

}  // namespace
}  // namespace poseidon
