// What strangers, broken peers and plain garbage do to a node: a number goes up, nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "core/steady_now.h"
#include "proto/wire.pb.h"
#include "tests/unit/log_lines.h"
#include "tests/unit/transport/raw_client.h"
#include "tests/unit/transport/zmq_testing.h"
#include "transport/zmq/zmq_frame.h"
#include "transport/zmq/zmq_peer.h"
#include "transport/zmq/zmq_runtime.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr int64_t kMaxFrame = 1 << 20;

using std::string_literals::operator""s;

std::string Command(const std::string& body) {
  return '\x04' + std::string(1, static_cast<char>(body.size())) + body;
}

// The first that a peer says: a greeting and a HELLO command of ZMTP 3.0 with the PLAIN mechanism.
std::string Hello() {
  std::string greeting(64, '\0');
  greeting[0] = '\xff';
  greeting[9] = '\x7f';
  greeting[10] = 3;
  greeting.replace(12, 5, "PLAIN");
  return greeting + Command("\x05HELLO\0\0"s);
}

// What comes next are messages.
void ShakeHands(RawClient& client) {
  client.Send(Hello());
  ASSERT_TRUE(client.Receive(64 + Command("\x07WELCOME").size()));
  client.Send(
      Command("\x08INITIATE"
              "\x0bSocket-Type"
              "\0\0\0\x06"
              "DEALER"s));
}

// A node whose four lanes give all they get to the application, and a peer of good manners.
class ZmqHostile : public testing::Test {
 protected:
  static ZmqOptions Options() {
    ZmqOptions options;
    options.bind_host = "127.0.0.1";
    options.data_lanes = 2;
    options.max_frame_bytes = kMaxFrame;
    return options;
  }

  void SetUp() override {
    for (int lane = 0; lane < 4; ++lane) {
      node_.Attach(lane, Forwarder());
      peer_.SetRoute(WorkerLane(0, lane), node_.endpoint(lane));
    }
    node_.Start();
    peer_.Start();
  }

  // The node still works and has heard of nothing.
  void ExpectUnharmed() {
    for (int lane = 0; lane < 4; ++lane) {
      peer_.Post(Gradient(WorkerLane(0, lane), Payload::FromString("hello"), lane));
      const auto envelope = node_.mailbox().Take(kPatience);
      ASSERT_TRUE(envelope);
      EXPECT_EQ(envelope->iteration, lane);
      EXPECT_EQ(envelope->body.ToString(), "hello");
    }
    EXPECT_FALSE(node_.mailbox().Take(Duration(0)));
  }

  ZmqRuntime node_{{Role::kWorker, 0}, Options()};
  ZmqRuntime peer_{{Role::kWorker, 1}, Options()};
};

TEST_F(ZmqHostile, EndsConnectionsThatDoNotSpeakZeroMq) {
  std::mt19937 random(5);
  std::string noise(1000, '\0');
  for (char& byte : noise) byte = static_cast<char>(random());
  noise[0] = 'x';
  const std::string huge("\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x00more", 14);  // a frame of ZMTP 1
  const std::string version_2("\xff\0\0\0\0\0\0\0\x01\x7f\x01\x05", 12);
  const std::string old = Hello().substr(0, 10) + '\x01' + noise;
  std::string mechanism = Hello();
  mechanism.replace(12, 5, "CURVE");
  const std::string null = std::string(mechanism).replace(12, 5, "NULL\0"s);
  const std::string malformed = Hello().substr(0, 64) + std::string("\x04\x05HELLO");
  const std::string huge_frame("\x02\x7f\xff\xff\xff\xff\xff\xff\xff", 9);
  const std::string over_the_limit =
      std::string("\x02\0\0\0\0\0\x10\0\x01", 9) + std::string(4096, 'x');
  const LogLines log;
  int64_t rejected = 0;
  for (const std::string& bytes : {noise, std::string("GET / HTTP/1.1\r\n\r\n"), huge, version_2,
                                   old, mechanism, null, malformed, huge_frame, over_the_limit}) {
    for (int lane = 0; lane < 4; ++lane) {
      RawClient client(node_.endpoint(lane));
      ASSERT_TRUE(client.connected());
      if (bytes == huge_frame || bytes == over_the_limit) ShakeHands(client);
      client.Send(bytes);
      EXPECT_TRUE(client.WaitForEnd()) << rejected;
      ++rejected;
    }
  }
  EXPECT_TRUE(Eventually([&] { return node_.counters().rejected_connections == rejected; }))
      << node_.counters().rejected_connections << " of " << rejected;
  // One of each kind for each lane that was tried.
  const std::vector<std::string> lines = log.lines();
  const auto turned_away = std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
    return line.starts_with("turned");
  });
  EXPECT_EQ(turned_away, 4);
  EXPECT_THAT(lines, SizeIs(8));
  ExpectUnharmed();
  EXPECT_EQ(node_.counters().malformed_frames, 0);
}

TEST_F(ZmqHostile, BearsConnectionsThatSayNothingOrStopHalfway) {
  const LogLines log;
  int64_t rejected = 0;
  for (size_t length = 0; length <= Hello().size(); length += 7) {
    RawClient silent(node_.endpoint(kFirstDataLane));
    ASSERT_TRUE(silent.connected());
    silent.Send(Hello().substr(0, length));
    ExpectUnharmed();
    ++rejected;
  }
  EXPECT_TRUE(Eventually([&] { return node_.counters().rejected_connections == rejected; }));
  EXPECT_THAT(log.lines(), ElementsAre(HasSubstr("further ones are only counted")));
}

TEST_F(ZmqHostile, DropsMalformedFrames) {
  Envelope envelope = Gradient(WorkerLane(0, 0), Payload::FromString("body"));
  envelope.from = WorkerLane(1, 0);
  const std::string good = EncodeHeader(envelope);
  wire::FrameHeader internal;
  internal.ParseFromString(good);
  internal.set_kind(static_cast<uint32_t>(MessageKind::kGradientReady));
  const std::vector<std::vector<std::string>> bad = {
      {""},
      {"", ""},
      {"garbage", "body"},
      {std::string(100000, '\xff')},
      {good},                  // its body is missing
      {good, "longer body"},   // of another size
      {good, "body", "more"},  // frames too many
      {good, "body", "", "", "", ""},
      {internal.SerializeAsString(), "body"},
  };
  zmq::context_t context;
  for (int lane = 0; lane < 4; ++lane) {
    zmq::socket_t dealer(context, zmq::socket_type::dealer);
    dealer.set(zmq::sockopt::plain_username, "stranger");
    dealer.connect(node_.endpoint(lane));
    for (const auto& frames : bad) {
      for (size_t i = 0; i < frames.size(); ++i) {
        dealer.send(zmq::buffer(frames[i]),
                    i + 1 < frames.size() ? zmq::send_flags::sndmore : zmq::send_flags::none);
      }
    }
    // The good one after all the bad ones is as good as any.
    dealer.send(zmq::buffer(good), zmq::send_flags::sndmore);
    dealer.send(zmq::str_buffer("body"), zmq::send_flags::none);
    const auto arrived = node_.mailbox().Take(kPatience);
    ASSERT_TRUE(arrived);
    EXPECT_EQ(arrived->body.ToString(), "body");
  }
  EXPECT_EQ(node_.counters().malformed_frames, static_cast<int64_t>(4 * bad.size()));
  EXPECT_EQ(node_.counters().rejected_connections, 0);
  ExpectUnharmed();
}

TEST_F(ZmqHostile, DropsFramesForALaneWithoutActor) {
  ZmqRuntime bare({Role::kServer, 0}, Options());
  bare.Start();
  const Address lane{{Role::kServer, 0}, kFirstDataLane};
  peer_.SetRoute(lane, bare.endpoint(kFirstDataLane));
  // Who measures a link asks again; nobody need hear of it.
  Envelope probe = Gradient(lane, {});
  probe.kind = MessageKind::kProbe;
  peer_.Post(std::move(probe));
  peer_.Post(Gradient(lane, Payload::FromString("early")));
  EXPECT_TRUE(Eventually([&] { return bare.counters().malformed_frames == 1; }));
  bare.Attach(kFirstDataLane, Forwarder());
  peer_.Post(Gradient(lane, Payload::FromString("in time")));
  EXPECT_EQ(bare.mailbox().Take(kPatience)->body.ToString(), "in time");
}

// A port of this machine at which something listens that does not speak ZeroMQ.
class SshServer {
 public:
  SshServer() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    const int one = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(listener_, 10), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
  }
  ~SshServer() { Close(); }
  SshServer(const SshServer&) = delete;
  SshServer& operator=(const SshServer&) = delete;

  int port() const { return port_; }

  void Accept() { connection_ = accept(listener_, nullptr, nullptr); }

  // Says who it is, and returns when the other side has ended the connection for that.
  void Greet() {
    const std::string greeting = "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n";
    EXPECT_EQ(send(connection_, greeting.data(), greeting.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(greeting.size()));
    char buffer[256];
    while (recv(connection_, buffer, sizeof(buffer), 0) > 0) {
    }
  }

  void Close() {
    for (int* const fd : {&connection_, &listener_}) {
      if (*fd >= 0) close(std::exchange(*fd, -1));
    }
  }

 private:
  int listener_;
  int connection_ = -1;
  int port_ = 0;
};

// This node's sends wait, other peers are served, and once a node listens there, what waited
// arrives without another word from anybody.
TEST_F(ZmqHostile, OutlivesAnEndpointThatIsSomethingElse) {
  SshServer other;
  const Address to{{Role::kServer, 0}, kControlLane};
  peer_.SetRoute(to, "tcp://127.0.0.1:" + std::to_string(other.port()));
  peer_.Post(Gradient(to, Payload::FromString("first")));
  other.Accept();
  // Not sooner: ZeroMQ 4.3.4 never notices a connection that fails before zmq_connect returns.
  ASSERT_TRUE(Eventually([&] { return peer_.counters().frames_sent == 1; }));
  other.Greet();
  other.Close();
  // What ZeroMQ takes before it has noticed is lost. On a busy machine the lane may have another
  // socket by the first look, which takes all until somebody listens.
  const Time replaced = SteadyNow() + 2 * kReplaceAfter;
  ASSERT_TRUE(Eventually([&] {
    const int64_t sent = peer_.counters().frames_sent;
    peer_.Post(Gradient(to, Payload::FromString("again")));
    const Time end = SteadyNow() + std::chrono::milliseconds(100);
    while (peer_.counters().frames_sent == sent && SteadyNow() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return peer_.counters().frames_sent == sent || SteadyNow() > replaced;
  }));
  ExpectUnharmed();
  ZmqOptions options = Options();
  options.control_port = other.port();
  ZmqRuntime late({Role::kServer, 0}, options);
  late.Attach(kControlLane, Forwarder());
  late.Start();
  const auto envelope = late.mailbox().Take(kPatience);
  ASSERT_TRUE(envelope) << "nobody has tried again";
  EXPECT_EQ(envelope->body.ToString(), "again");
}

// The window is full of what ZeroMQ has taken and never sends.
TEST_F(ZmqHostile, AFullWindowOutlivesAnEndpointThatIsSomethingElse) {
  ZmqOptions options = Options();
  options.window_bytes = 1;
  ZmqRuntime sender({Role::kWorker, 2}, options);
  sender.Start();
  SshServer other;
  const Address to{{Role::kServer, 0}, kControlLane};
  sender.SetRoute(to, "tcp://127.0.0.1:" + std::to_string(other.port()));
  sender.Post(Gradient(to, Payload::FromString("first")));
  sender.Post(Gradient(to, Payload::FromString("second")));
  other.Accept();
  ASSERT_TRUE(Eventually(
      [&] { return sender.counters().frames_sent == 1 && sender.counters().queued_frames == 1; }));
  other.Greet();
  other.Close();
  options = Options();
  options.control_port = other.port();
  ZmqRuntime late({Role::kServer, 0}, options);
  late.Attach(kControlLane, Forwarder());
  late.Start();
  const auto envelope = late.mailbox().Take(kPatience);
  ASSERT_TRUE(envelope) << "nobody has noticed";
  EXPECT_EQ(envelope->body.ToString(), "second");
}

}  // namespace
}  // namespace poseidon
