// Ports that a job keeps while its scheduler is away.
#include "launch/port_pair.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <set>
#include <vector>

namespace poseidon {
namespace {

class Listener {
 public:
  // As ZeroMQ does with SO_REUSEADDR, and as who looks for a free port without.
  Listener(int port, bool reuses) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    const int on = 1;
    if (reuses) setsockopt(socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    listens_ = bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
               listen(socket_, 1) == 0;
  }
  ~Listener() { close(socket_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  bool listens() const { return listens_; }

 private:
  int socket_;
  bool listens_ = false;
};

TEST(PortPairTest, IsForWhoKnowsItAndForNobodyElse) {
  const PortPair ports;
  for (const int port : {ports.first(), ports.first() + 1}) {
    EXPECT_FALSE(Listener(port, false).listens());
    // A scheduler, and the one that is started in its place.
    for (int time = 0; time < 2; ++time) {
      EXPECT_TRUE(Listener(port, true).listens());
      EXPECT_FALSE(Listener(port, false).listens());
    }
  }
}

TEST(PortPairTest, NobodyElseCanListenWhereSomebodyDoes) {
  const PortPair ports;
  EXPECT_FALSE(IsPairTaken(ports.first()));
  for (const int port : {ports.first(), ports.first() + 1}) {
    const Listener listener(port, true);
    ASSERT_TRUE(listener.listens());
    EXPECT_TRUE(IsPairTaken(ports.first())) << port;
  }
  EXPECT_FALSE(IsPairTaken(ports.first()));
}

// Ports below 1024 are not everybody's, and a process may have no socket left.
TEST(PortPairTest, PortsThatCanNotBeTriedAreNotTaken) {
  const PortPair ports;
  const Listener listener(ports.first(), true);
  ASSERT_TRUE(IsPairTaken(ports.first()));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none = {0, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool is_taken = IsPairTaken(ports.first());
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(is_taken);
}

TEST(PortPairTest, NoTwoPairsHaveAPortInCommon) {
  std::vector<std::unique_ptr<PortPair>> pairs;
  std::set<int> ports;
  for (int i = 0; i < 200; ++i) {
    pairs.push_back(std::make_unique<PortPair>());
    EXPECT_TRUE(ports.insert(pairs.back()->first()).second);
    EXPECT_TRUE(ports.insert(pairs.back()->first() + 1).second);
  }
}

TEST(PortPairTest, IsFreeAfterwards) {
  int port = 0;
  {
    const PortPair ports;
    port = ports.first();
  }
  EXPECT_TRUE(Listener(port, false).listens());
}

}  // namespace
}  // namespace poseidon
