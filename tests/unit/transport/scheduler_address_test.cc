// The scheduler's name, looked up again and again by name servers of all kinds.
#include "transport/membership/scheduler_address.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <mutex>
#include <thread>

#include "core/error.h"

namespace poseidon {
namespace {

Cluster ClusterAt(const std::string& host) {
  Cluster cluster;
  cluster.set_scheduler_host(host);
  cluster.set_scheduler_port(9700);
  return cluster;
}

// Answers what it was told to, and counts.
class NameServer {
 public:
  void Answer(std::vector<std::string> addresses) {
    const std::lock_guard lock(mutex_);
    addresses_ = std::move(addresses);
  }
  int asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  SchedulerAddress::Resolver resolver() {
    return [this](const std::string& host) {
      EXPECT_EQ(host, "node0");
      const std::lock_guard lock(mutex_);
      ++asked_;
      return addresses_;
    };
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> addresses_;
  int asked_ = 0;
};

class SchedulerAddressTest : public testing::Test {
 protected:
  bool LookUp() {
    const int before = server_.asked();
    address_.LookUp();
    while (address_.is_looking_up()) std::this_thread::yield();
    EXPECT_EQ(server_.asked(), before + 1);
    const bool changed = address_.TakeChange();
    EXPECT_FALSE(address_.TakeChange()) << "it has been told";
    return changed;
  }

  NameServer server_;
  SchedulerAddress address_{ClusterAt("node0"), "10.0.0.1", server_.resolver()};
};

TEST_F(SchedulerAddressTest, FollowsTheName) {
  EXPECT_EQ(address_.Endpoint(1), "tcp://10.0.0.1:9701");
  server_.Answer({"10.0.0.1"});
  EXPECT_FALSE(LookUp());
  server_.Answer({});  // nobody knows it for a while
  EXPECT_FALSE(LookUp());
  server_.Answer({"fd00::7"});
  EXPECT_TRUE(LookUp());
  EXPECT_EQ(address_.Endpoint(0), "tcp://[fd00::7]:9700");
  EXPECT_FALSE(LookUp());
}

TEST_F(SchedulerAddressTest, StaysWithAnAddressThatTheNameStillHas) {
  server_.Answer({"10.0.0.2", "10.0.0.1"});
  EXPECT_FALSE(LookUp());
  server_.Answer({"10.0.0.2", "10.0.0.3"});
  EXPECT_TRUE(LookUp());
  EXPECT_EQ(address_.Endpoint(0), "tcp://10.0.0.2:9700");
}

TEST_F(SchedulerAddressTest, AsksNobodyAboutAnAddress) {
  SchedulerAddress address(ClusterAt("10.0.0.9"));
  EXPECT_EQ(address.Endpoint(0), "tcp://10.0.0.9:9700");
  address.LookUp();
  EXPECT_FALSE(address.is_looking_up());
  EXPECT_FALSE(address.TakeChange());
  EXPECT_THROW(SchedulerAddress(ClusterAt("no such host")), ConfigError);
}

// A name server that does not answer holds up neither the node nor its end.
TEST(SlowNameServerTest, NobodyWaitsForIt) {
  const auto answers = std::make_shared<std::promise<void>>();
  const auto has_ended = std::make_shared<std::promise<void>>();
  {
    SchedulerAddress address(ClusterAt("node0"), "10.0.0.1", [=](const std::string&) {
      answers->get_future().wait();
      has_ended->set_value();
      return std::vector<std::string>{"10.0.0.2"};
    });
    for (int call = 0; call < 10; ++call) {
      address.LookUp();
      EXPECT_TRUE(address.is_looking_up());
      EXPECT_FALSE(address.TakeChange());
    }
  }
  answers->set_value();
  EXPECT_EQ(has_ended->get_future().wait_for(std::chrono::seconds(30)), std::future_status::ready);
}

}  // namespace
}  // namespace poseidon
