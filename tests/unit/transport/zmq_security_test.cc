// Who gets in where a job has a key, or a list of networks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <deque>
#include <zmq_addon.hpp>

#include "tests/unit/transport/raw_client.h"
#include "tests/unit/transport/zmq_testing.h"
#include "transport/zmq/zmq_admission.h"

namespace poseidon {
namespace {

ZmqOptions WithKey(const JobKey& key) {
  ZmqOptions options = Lanes(1);
  options.key = key;
  options.linger = Duration(0);
  return options;
}

// A node with a key whose lanes give all they get to the application, and a peer with the same key.
class ZmqSecurity : public testing::Test {
 protected:
  void SetUp() override {
    for (int lane = 0; lane < kLanes; ++lane) node_.Attach(lane, Forwarder());
    node_.Start();
    Introduce(peer_);
    peer_.Start();
  }

  void Introduce(ZmqRuntime& to) {
    for (int lane = 0; lane < kLanes; ++lane) {
      to.SetRoute(WorkerLane(0, lane), node_.endpoint(lane));
    }
  }

  static void PostToAllLanes(ZmqRuntime& from, const std::string& body) {
    for (int lane = 0; lane < kLanes; ++lane) {
      from.Post(Gradient(WorkerLane(0, lane), Payload::FromString(body), lane));
    }
  }

  // What the peer says arrives, and nothing else has.
  void ExpectOnlyThePeerIsHeard() {
    PostToAllLanes(peer_, "hello");
    for (int lane = 0; lane < kLanes; ++lane) {
      const auto envelope = node_.mailbox().Take(kPatience);
      ASSERT_TRUE(envelope);
      EXPECT_EQ(envelope->body.ToString(), "hello");
    }
    EXPECT_FALSE(node_.mailbox().Take(Duration(0)));
  }

  // All of the node's lanes have turned away who comes with these options, who claims to be
  // `peer_`.
  void ExpectRejected(const ZmqOptions& options) {
    const int64_t before = rejected();
    ZmqRuntime stranger({Role::kWorker, 1}, options);
    Introduce(stranger);
    stranger.Start();
    PostToAllLanes(stranger, "let me in");
    EXPECT_TRUE(Eventually([&] { return rejected() >= before + kLanes; }));
    ExpectOnlyThePeerIsHeard();
  }

  int64_t rejected() const { return node_.counters().rejected_connections; }

  static constexpr int kLanes = 3;
  const JobKey key_ = JobKey::Make();
  ZmqRuntime node_{{Role::kWorker, 0}, WithKey(key_)};
  ZmqRuntime peer_{{Role::kWorker, 1}, WithKey(key_)};
};

TEST_F(ZmqSecurity, HearsThoseWithTheKey) {
  ExpectOnlyThePeerIsHeard();
  const std::string large(3 << 20, 'g');
  PostToAllLanes(peer_, large);
  for (int lane = 0; lane < kLanes; ++lane) {
    const auto envelope = node_.mailbox().Take(kPatience);
    ASSERT_TRUE(envelope);
    EXPECT_EQ(envelope->body.ToString(), large);
  }
  EXPECT_EQ(rejected(), 0);
  EXPECT_EQ(node_.counters().refused_connections, 0);
}

TEST_F(ZmqSecurity, HearsTheLongestBody) {
  ZmqOptions options = WithKey(key_);
  options.max_frame_bytes = 1024;
  ZmqRuntime small({Role::kWorker, 2}, options);
  small.Attach(kControlLane, Forwarder());
  small.Start();
  peer_.SetRoute(WorkerLane(2, kControlLane), small.endpoint(kControlLane));
  const std::string longest(1024, 'g');
  peer_.Post(Gradient(WorkerLane(2, kControlLane), Payload::FromString(longest)));
  const auto envelope = small.mailbox().Take(kPatience);
  ASSERT_TRUE(envelope);
  EXPECT_EQ(envelope->body.ToString(), longest);
}

TEST_F(ZmqSecurity, HearsNobodyWithoutAKey) {
  ZmqOptions options = Lanes(1);
  options.linger = Duration(0);
  ExpectRejected(options);
}

TEST_F(ZmqSecurity, HearsNobodyWithAnotherJobsKey) { ExpectRejected(WithKey(JobKey::Make())); }

// The public half is no secret of the protocol's: whoever has only that is refused for his own key.
TEST_F(ZmqSecurity, RefusesAKeyOfOnesOwn) {
  const JobKey own = JobKey::Make();
  zmq::context_t context;
  zmq::socket_t dealer(context, zmq::socket_type::dealer);
  dealer.set(zmq::sockopt::linger, 0);
  dealer.set(zmq::sockopt::curve_serverkey, key_.public_key);
  dealer.set(zmq::sockopt::curve_publickey, own.public_key);
  dealer.set(zmq::sockopt::curve_secretkey, own.secret_key);
  dealer.connect(node_.endpoint(kControlLane));
  dealer.send(zmq::str_buffer("let me in"), zmq::send_flags::none);
  EXPECT_TRUE(Eventually([&] { return node_.counters().refused_connections > 0; }));
  ExpectOnlyThePeerIsHeard();
}

// A node with a key says nothing to who does not have it: its frames wait, and none is readable.
TEST_F(ZmqSecurity, SaysNothingToAnImpostor) {
  ZmqOptions open = Lanes(1);
  open.linger = Duration(0);
  ZmqRuntime impostor({Role::kWorker, 2}, open);
  impostor.Attach(kControlLane, Forwarder());
  impostor.Start();
  peer_.SetRoute(WorkerLane(2, kControlLane), impostor.endpoint(kControlLane));
  peer_.Post(Gradient(WorkerLane(2, kControlLane), Payload::FromString("secret")));
  EXPECT_TRUE(Eventually([&] { return impostor.counters().rejected_connections > 0; }));
  EXPECT_EQ(impostor.counters().frames_received, 0);
  EXPECT_EQ(impostor.counters().malformed_frames, 0);
}

TEST_F(ZmqSecurity, SilentConnectionsHoldUpNobody) {
  std::deque<RawClient> silent;
  for (int i = 0; i < 300; ++i) {
    silent.emplace_back(node_.endpoint(i % kLanes));
    ASSERT_TRUE(silent.back().connected());
  }
  ExpectOnlyThePeerIsHeard();
  silent.clear();
  EXPECT_TRUE(Eventually([&] { return rejected() == 300; })) << rejected();
}

// Passes what a client says on to a node and back, and keeps it.
class Recorder {
 public:
  explicit Recorder(const std::string& endpoint) : node_(endpoint) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(listener_, 1), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    endpoint_ = "tcp://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { Run(); });
  }
  ~Recorder() { close(listener_); }

  const std::string& endpoint() const { return endpoint_; }
  // What the client has said.
  std::string Take() {
    stopping_ = true;
    thread_.join();
    return std::move(said_);
  }

 private:
  void Run() {
    const int client = accept(listener_, nullptr, nullptr);
    std::array<pollfd, 2> both = {pollfd{client, POLLIN, 0}, pollfd{node_.fd(), POLLIN, 0}};
    while (!stopping_) {
      poll(both.data(), both.size(), 10);
      for (const bool from_client : {true, false}) {
        if (both[from_client ? 0 : 1].revents == 0) continue;
        std::array<char, 4096> buffer;
        const ssize_t got =
            recv(from_client ? client : node_.fd(), buffer.data(), buffer.size(), 0);
        if (got <= 0) continue;
        const std::string bytes(buffer.data(), static_cast<size_t>(got));
        if (from_client) {
          said_ += bytes;
          node_.Send(bytes);
        } else {
          (void)!send(client, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        }
      }
    }
    close(client);
  }

  RawClient node_;
  const int listener_ = socket(AF_INET, SOCK_STREAM, 0);
  std::string endpoint_;
  std::string said_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

TEST_F(ZmqSecurity, HandshakesThatAreReplayedOrCutGetNobodyIn) {
  Recorder recorder(node_.endpoint(kControlLane));
  ZmqRuntime third({Role::kWorker, 2}, WithKey(key_));
  third.SetRoute(WorkerLane(0, kControlLane), recorder.endpoint());
  third.Start();
  third.Post(Gradient(WorkerLane(0, kControlLane), Payload::FromString("once")));
  const auto heard = node_.mailbox().Take(kPatience);
  ASSERT_TRUE(heard);
  EXPECT_EQ(heard->body.ToString(), "once");
  const std::string said = recorder.Take();
  ASSERT_GT(said.size(), 64u + 200u + 257u);  // greeting, HELLO, INITIATE, the frame

  const int64_t before = rejected();
  int64_t tried = 0;
  for (size_t length = 0; length <= said.size(); length += length < said.size() - 17 ? 17 : 1) {
    RawClient replay(node_.endpoint(kControlLane));
    replay.Send(said.substr(0, length));
    ++tried;
  }
  EXPECT_TRUE(Eventually([&] { return rejected() >= before + tried; })) << rejected() - before;
  ExpectOnlyThePeerIsHeard();
}

// Asks an admission as ZeroMQ does; the status that it answers.
std::string Ask(zmq::context_t& context, const std::string& address) {
  zmq::socket_t socket(context, zmq::socket_type::req);
  socket.set(zmq::sockopt::linger, 0);
  socket.connect("inproc://zeromq.zap.01");
  const std::array<std::string, 8> question = {"1.0", "1",     "poseidon", address,
                                               "",    "PLAIN", "name",     ""};
  for (size_t i = 0; i < question.size(); ++i) {
    socket.send(zmq::buffer(question.at(i)),
                i + 1 < question.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
  }
  std::vector<zmq::message_t> answer;
  (void)zmq::recv_multipart(socket, std::back_inserter(answer));
  return answer.at(2).to_string();
}

TEST(ZmqAdmission, AllowsTheNetworksOfTheListAndTheLoopback) {
  zmq::context_t context;
  ZmqOptions options;
  options.allowed = {"10.0.0.0/8", "fd00::/8"};
  TransportCounters counters;
  ZmqAdmission admission(context, options, counters);
  for (const char* address : {"10.1.2.3", "::ffff:10.1.2.3", "fd00::7", "127.0.0.1", "::1"}) {
    EXPECT_EQ(Ask(context, address), "200") << address;
  }
  EXPECT_EQ(counters.refused_connections, 0);
  for (const char* address : {"11.1.2.3", "fe80::1", "", "nonsense"}) {
    EXPECT_EQ(Ask(context, address), "400") << address;
  }
  EXPECT_EQ(Ask(context, "11.1.2.3"), "400");
  EXPECT_EQ(counters.refused_connections, 5);
}

}  // namespace
}  // namespace poseidon
