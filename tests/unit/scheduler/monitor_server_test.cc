// The monitor's server on real sockets of the loopback device: what it answers, whom it refuses,
// and that no client holds it up.
#include "scheduler/monitor/monitor_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "core/error.h"
#include "core/http/access.h"
#include "core/steady_now.h"
#include "scheduler/monitor/followers.h"
#include "scheduler/monitor/job_monitor.h"
#include "scheduler/monitor/monitor_client.h"
#include "tests/unit/http_client.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr Duration kDeadline = Seconds(30);

class MonitorServerTest : public testing::Test {
 protected:
  explicit MonitorServerTest(const std::string& token = "")
      : server_(std::make_unique<MonitorServer>(MonitorOptions{"127.0.0.1", 0, token}, board_)),
        port_(server_->port()) {}

  // `age`: how long ago the scheduler has said so.
  void Publish(int64_t iteration, const std::string& name = "digits", Duration age = {}) {
    JobStatus status;
    status.job = name;
    status.iteration = iteration;
    status.now = SteadyNow() - age;
    board_.Publish(std::move(status));
  }

  std::string Ask(const std::string& path, const std::string& headers = "Host: localhost\r\n",
                  const std::string& method = "GET") const {
    HttpClient client(port_);
    client.Send(method + " " + path + " HTTP/1.1\r\n" + headers + "\r\n");
    return client.Read();
  }

  StatusBoard board_;
  std::unique_ptr<MonitorServer> server_;
  int port_;
};

class GuardedMonitorTest : public MonitorServerTest {
 protected:
  static constexpr const char* kToken = "0123456789abcdef";
  GuardedMonitorTest() : MonitorServerTest(kToken) { Publish(3); }
};

TEST_F(MonitorServerTest, ServesWhatItSays) {
  EXPECT_THAT(Ask("/api/job"), StartsWith("HTTP/1.1 503 "));
  Publish(7);
  EXPECT_THAT(Ask("/healthz"), HasSubstr("\r\n\r\nok\n"));
  EXPECT_THAT(Ask("/api/job"), HasSubstr("\"iteration\":7"));
  EXPECT_THAT(Ask("/metrics"), HasSubstr("\nposeidon_iteration 7\n"));
  EXPECT_THAT(Ask("/metrics"), HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(Ask("/"), HasSubstr("Content-Security-Policy: default-src 'none'"));
  EXPECT_THAT(Ask("/"), HasSubstr("<!DOCTYPE html>"));
  Publish(8);
  EXPECT_THAT(Ask("/api/job"), HasSubstr("\"iteration\":8"));
}

TEST_F(MonitorServerTest, IsNotHealthyWithASchedulerThatStandsStill) {
  EXPECT_THAT(Ask("/healthz"), StartsWith("HTTP/1.1 200 ")) << "it is about to begin";
  Publish(7, "digits", Seconds(31));
  const std::string still = Ask("/healthz");
  EXPECT_THAT(still, StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(still, HasSubstr("the scheduler has done nothing for 31 s"));
  EXPECT_THAT(Ask("/api/job"), HasSubstr("\"iteration\":7"));
  Publish(8);
  EXPECT_THAT(Ask("/healthz"), StartsWith("HTTP/1.1 200 "));
  Publish(9, "digits", Seconds(31));
  board_.Close();
  EXPECT_THAT(Ask("/healthz"), StartsWith("HTTP/1.1 200 ")) << "a job that has ended";
}

TEST_F(MonitorServerTest, RefusesWhatItDoesNotServe) {
  Publish(1);
  EXPECT_THAT(Ask("/etc/passwd"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask("/../../etc/passwd"), Not(HasSubstr("root:")));
  EXPECT_THAT(Ask("/api/job", "Host: localhost\r\n", "POST"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask("/api/job", "Host: localhost\r\n", "DELETE"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask("/api/job", "Host: localhost\r\n", "\x01\xff"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Ask("/" + std::string(100000, 'a')), StartsWith("HTTP/1.1 4"));
  EXPECT_THAT(Ask("/api/job"), StartsWith("HTTP/1.1 200 "));
}

// A page of another site can have its name resolve to this machine, and a browser here ask.
TEST_F(MonitorServerTest, AnswersToNamesOfThisMachineOnly) {
  Publish(1);
  for (const std::string host : {"localhost:80", "127.0.0.1", "[::1]:9"}) {
    EXPECT_THAT(Ask("/api/job", "Host: " + host + "\r\n"), StartsWith("HTTP/1.1 200 ")) << host;
  }
  for (const std::string host : {"evil.example", "10.0.0.1:80", "localhost.evil.example", ""}) {
    EXPECT_THAT(Ask("/api/job", "Host: " + host + "\r\n"), StartsWith("HTTP/1.1 403 ")) << host;
  }
}

TEST_F(GuardedMonitorTest, WantsItsToken) {
  const std::string host = "Host: node7\r\n";
  for (const std::string path : {"/", "/api/job", "/api/events", "/metrics", "/nothing"}) {
    EXPECT_THAT(Ask(path, host), StartsWith("HTTP/1.1 401 ")) << path;
  }
  EXPECT_THAT(Ask("/healthz", host), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask("/api/job?token=0123456789abcdeF", host), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(Ask("/api/job", host + "Authorization: Bearer 0123456789abcde\r\n"),
              StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(Ask("/api/job", host + "Authorization: Bearer 0123456789abcdef\r\n"),
              StartsWith("HTTP/1.1 200 "));
  const std::string page = Ask("/?token=0123456789abcdef", host);
  EXPECT_THAT(page, StartsWith("HTTP/1.1 200 "));
  const std::string cookie = "poseidon_" + std::to_string(server_->port()) + "=0123456789abcdef";
  EXPECT_THAT(page, HasSubstr("Set-Cookie: " + cookie + "; HttpOnly; SameSite=Strict"));
  EXPECT_THAT(Ask("/api/job", host + "Cookie: a=b; " + cookie + "\r\n"),
              StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask("/api/job", host + "Cookie: a=b\r\n"), StartsWith("HTTP/1.1 401 "));
}

// With all that base64 may have beside letters and digits.
class Base64TokenTest : public MonitorServerTest {
 protected:
  Base64TokenTest() : MonitorServerTest("q+Z/+8=vB123456789==") { Publish(3); }

  std::string AskWith(const std::string& query) { return Ask("/" + query, "Host: node7\r\n"); }
};

TEST_F(Base64TokenTest, IsTakenAsItIsEnteredInABrowser) {
  EXPECT_THAT(AskWith("?token=q+Z/+8=vB123456789=="), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(AskWith("?a=b&token=q+Z/+8=vB123456789==&c=d"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(AskWith("?token=q%2BZ%2f%2B8%3DvB123456789%3D%3D"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(AskWith("?token=q%20Z/%208=vB123456789=="), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(AskWith("?token=q+Z/+8=vB123456789="), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(AskWith("?token=q+Z/+8=vB123456789=%3"), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(AskWith("?tokens=q+Z/+8=vB123456789=="), StartsWith("HTTP/1.1 401 "));
  EXPECT_THAT(AskWith("token=q+Z/+8=vB123456789=="), StartsWith("HTTP/1.1 401 "));
}

TEST_F(MonitorServerTest, TellsThoseWhoFollowUntilTheEnd) {
  Publish(1);
  HttpClient client(server_->port());
  client.Send("GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(client.Read("\"iteration\":1,"), HasSubstr("Content-Type: text/event-stream"));
  Publish(2);
  EXPECT_THAT(client.Read("\"iteration\":2,"), HasSubstr("\"iteration\":2,"));
  Publish(3);
  board_.Close();
  const Time begin = SteadyNow();
  server_.reset();
  EXPECT_LT(SteadyNow() - begin, MonitorServer::kPatience);
  EXPECT_THAT(client.Read(), HasSubstr("\"iteration\":3,"));
}

// On a busy machine more time passes between two times than it is meant to.
TEST_F(MonitorServerTest, WhoAsksUnderANameHearsOfTheEnd) {
  Publish(1);
  const std::string followed = "/api/job?follower=k3x9";
  EXPECT_THAT(Ask(followed), HasSubstr("\"iteration\":1,"));
  Publish(2);
  board_.Close();
  const auto ended = std::async(std::launch::async, [&] { server_.reset(); });
  EXPECT_EQ(ended.wait_for(Seconds(2)), std::future_status::timeout);
  EXPECT_THAT(Ask(followed), HasSubstr("\"iteration\":2,"));
  ended.wait();
}

TEST_F(MonitorServerTest, NobodyElseIsWaitedFor) {
  Publish(1);
  Ask("/api/job");
  Ask("/api/job?follower=told");
  Ask("/api/job?follower=streams");
  board_.Close();
  Ask("/api/job?follower=told");
  EXPECT_THAT(Ask("/api/events?follower=streams"), HasSubstr("\"iteration\":1,"));
  const Time begin = SteadyNow();
  server_.reset();
  EXPECT_LT(SteadyNow() - begin, MonitorServer::kPatience);
}

TEST(FollowersTest, AreThoseWhoHaveNotBeenTold) {
  Followers followers;
  followers.Asked("", Time(Seconds(9)));
  EXPECT_FALSE(followers.AnyAskedSince(Time{}));
  followers.Asked("one", Time(Seconds(1)));
  followers.Asked("two", Time(Seconds(1)));
  followers.Asked("two", Time(Seconds(3)));
  EXPECT_TRUE(followers.AnyAskedSince(Time(Seconds(3))));
  EXPECT_FALSE(followers.AnyAskedSince(Time(Seconds(4))));
  followers.Forget("two");
  EXPECT_FALSE(followers.AnyAskedSince(Time(Seconds(2))));
  EXPECT_TRUE(followers.AnyAskedSince(Time(Seconds(1))));
}

TEST(FollowersTest, OfMoreTheLastAreKept) {
  Followers followers;
  followers.Asked("last", Time(Seconds(9)));
  for (size_t i = 0; i < Followers::kMost; ++i) {
    followers.Asked(std::to_string(i), Time(Seconds(i == 3 ? 1 : 2)));
  }
  EXPECT_TRUE(followers.AnyAskedSince(Time(Seconds(9))));
  followers.Forget("last");
  for (size_t i = 0; i < Followers::kMost; ++i) {
    if (i != 3) followers.Forget(std::to_string(i));
  }
  EXPECT_FALSE(followers.AnyAskedSince(Time{})) << "the one that had asked first";
}

TEST_F(MonitorServerTest, AFewFollowAndTheOthersAskNowAndThen) {
  Publish(1);
  std::vector<std::unique_ptr<HttpClient>> followers;
  for (int i = 0; i < MonitorServer::kStreams; ++i) {
    followers.push_back(std::make_unique<HttpClient>(server_->port()));
    followers.back()->Send("GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_THAT(followers.back()->Read("data: "), StartsWith("HTTP/1.1 200 "));
  }
  EXPECT_THAT(Ask("/api/events"), HasSubstr("Retry-After: 5"));
  EXPECT_THAT(Ask("/api/job"), StartsWith("HTTP/1.1 200 "));
  // Who goes away leaves room.
  followers.clear();
  const Time deadline = SteadyNow() + kDeadline;
  std::string answer;
  while (!answer.starts_with("HTTP/1.1 200 ") && SteadyNow() < deadline) {
    Publish(2);
    HttpClient next(server_->port());
    next.Send("GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n");
    answer = next.Read("\r\n\r\n");
  }
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
}

// What publishes is the loop that hears the job's actors: it must not notice who asks, or who does
// not even read what it has asked for.
TEST_F(MonitorServerTest, SlowAndManyClientsHoldUpNobody) {
  Publish(1, std::string(4 << 20, 'x'));  // more than the kernel takes for who does not read
  // Putting so much into words takes a busy machine's threads that run behind all others seconds.
  EXPECT_THAT(Ask("/api/job"), StartsWith("HTTP/1.1 200 "));
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 300; ++i) {
    clients.push_back(std::make_unique<HttpClient>(server_->port(), false));
    if (i % 3 == 0) clients.back()->Send("GET /api/job HTTP/1.1\r\nHost: localhost\r\n\r\n");
    if (i % 3 == 1) clients.back()->Send("GET /api/job HT");
  }
  // As long as one that nobody asks, but for what a busy machine does to either.
  Duration longest{};
  for (int i = 0; i < 200; ++i) {
    const Time begin = SteadyNow();
    Publish(i);
    longest = std::max(longest, SteadyNow() - begin);
  }
  EXPECT_LT(longest, MonitorServer::kPatience / 2);
  const Time begin = SteadyNow();
  server_.reset();
  EXPECT_LT(SteadyNow() - begin, MonitorServer::kPatience);
}

// A connection that the kernel can't keep is tried again after a second, and until then whoever
// asks waits.
TEST_F(MonitorServerTest, ManyAtOnceAreAllConnected) {
  std::vector<std::unique_ptr<HttpClient>> clients;
  for (int i = 0; i < 120; ++i) {
    const Time begin = SteadyNow();
    clients.push_back(std::make_unique<HttpClient>(server_->port()));
    EXPECT_LT(SteadyNow() - begin, Seconds(0.9)) << "connection " << i;
  }
}

TEST_F(MonitorServerTest, TwoHaveNotOnePort) {
  try {
    StatusBoard board;
    const MonitorServer second({"127.0.0.1", server_->port(), ""}, board);
    ADD_FAILURE() << "the port was taken twice";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the monitor can't listen at 127.0.0.1:" +
                                        std::to_string(server_->port())));
    EXPECT_THAT(error.what(), HasSubstr("set monitor.port to a free port, or to 0"));
  }
}

TEST_F(GuardedMonitorTest, TheCommandAsksLikewise) {
  MonitorAddress address = ParseMonitorAddress(server_->url());
  try {
    FetchStatus(address);
    ADD_FAILURE() << "no token was asked for";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kRefused);
    EXPECT_THAT(error.what(), HasSubstr("(HTTP status 401): a token is needed"));
  }
  address.token = kToken;
  EXPECT_EQ(nlohmann::json::parse(FetchStatus(address))["iteration"], 3);
  server_.reset();
  try {
    FetchStatus(address);
    ADD_FAILURE() << "nobody was there";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), StartsWith("no monitor answers at http://127.0.0.1:"));
  }
}

TEST(MonitorAddressTest, IsWhatTheSchedulerSays) {
  EXPECT_EQ(ParseMonitorAddress("http://node7:9780/").host, "node7");
  EXPECT_EQ(ParseMonitorAddress("http://[::1]:9780/").host, "[::1]");
  EXPECT_EQ(ParseMonitorAddress("9781").host, "127.0.0.1");
  EXPECT_EQ(ParseMonitorAddress("9781").port, 9781);
  for (const std::string bad : {"", "node7", "node7:0", "node7:65536", "https://node7:1/", ":9780",
                                "http://node7:9780/api", "node7:97x"}) {
    EXPECT_THROW(ParseMonitorAddress(bad), ConfigError) << bad;
  }
}

class TokenTest : public testing::Test {
 protected:
  std::string Write(const std::string& text, mode_t mode = S_IRUSR | S_IWUSR) {
    const std::string path = directory_.Write("token", text);
    chmod(path.c_str(), mode);
    return path;
  }
  std::string Refusal(const std::string& path) {
    try {
      ReadToken(path);
      return "";
    } catch (const ConfigError& error) {
      return error.what();
    }
  }
  TemporaryDirectory directory_;
};

TEST_F(TokenTest, IsALineThatOnlyItsOwnerReads) {
  EXPECT_EQ(ReadToken(Write("0123456789abcdef\n")), "0123456789abcdef");
  EXPECT_THAT(Refusal(Write("short\n")), HasSubstr("its first line must be 16 to 256 letters"));
  EXPECT_THAT(Refusal(Write("0123456789abcde;\n")), HasSubstr("must be 16 to 256 letters"));
  EXPECT_THAT(Refusal(Write("0123456789abcdef\n", S_IRUSR | S_IRGRP)),
              HasSubstr("can be read by others than its owner; run chmod 600"));
  EXPECT_THAT(Refusal(directory_.Path("none")), Not(""));
}

TEST(JobMonitorTest, SaysInTheOutputDirectoryWhereItIs) {
  const TemporaryDirectory directory;
  Job job;
  job.mutable_monitor()->set_port(0);
  const std::string path = directory.Path(JobMonitor::kUrlFile);
  {
    JobMonitor monitor(job, directory.Path(""));
    monitor.Announce();
    std::ifstream file(path);
    std::string url;
    std::getline(file, url);
    EXPECT_EQ(url, monitor.url());
    monitor.Publish(SteadyNow());
    EXPECT_EQ(nlohmann::json::parse(FetchStatus(ParseMonitorAddress(url)))["job"], "job");
  }
  EXPECT_FALSE(std::ifstream(path).good());
}

// What it counts would fall to 0 and come back for those who ask meanwhile.
TEST(JobMonitorTest, TellsNothingBeforeWhatTheSchedulerBeforeHasWrittenIsRead) {
  Job job;
  job.mutable_monitor()->set_port(0);
  JobMonitor monitor(job, "");
  const MonitorAddress address = ParseMonitorAddress(monitor.url());
  EXPECT_THAT(MessageOf<Error>([&] { FetchStatus(address); }), HasSubstr("about to begin"));
  wire::JournalRecord past;
  past.mutable_iteration()->set_images(16);
  monitor.tracker().Restore(past);
  monitor.Publish(SteadyNow());
  EXPECT_EQ(nlohmann::json::parse(FetchStatus(address))["images"], 16);
}

class MonitorUrlTest : public testing::Test {
 protected:
  MonitorUrlTest() { job_.mutable_monitor()->set_port(0); }

  int PortOf(const JobMonitor& monitor) { return ParseMonitorAddress(monitor.url()).port; }

  const TemporaryDirectory directory_;
  const std::string out_ = directory_.Path("");
  const std::string path_ = directory_.Path(JobMonitor::kUrlFile);
  Job job_;
};

// Whoever has its page open then sees the job go on.
TEST_F(MonitorUrlTest, LeadsToTheSchedulerThatTakesTheJobOver) {
  bool leads = false;
  // Somebody else may take the port between the two.
  for (int i = 0; i < 10 && !leads; ++i) {
    const std::string left = JobMonitor(job_, out_).url();
    std::ofstream(path_) << left << "\n";
    leads = JobMonitor(job_, out_).url() == left;
  }
  EXPECT_TRUE(leads);
}

TEST_F(MonitorUrlTest, IsAnotherWhereThePortIsTaken) {
  const JobMonitor taken(job_, "");
  for (const std::string& left : {taken.url() + "\n", std::string("no address"), std::string()}) {
    std::ofstream(path_) << left;
    const JobMonitor monitor(job_, out_);
    EXPECT_NE(PortOf(monitor), PortOf(taken)) << left;
    EXPECT_NE(PortOf(monitor), 0) << left;
  }
}

// As of a scheduler that was started by mistake, and ends as it finds the job's port taken.
TEST_F(MonitorUrlTest, StaysThatOfTheJobWhenAnotherMonitorEnds) {
  JobMonitor monitor(job_, out_);
  monitor.Announce();
  { const JobMonitor by_mistake(job_, out_); }
  std::string url;
  std::getline(std::ifstream(path_), url);
  EXPECT_EQ(url, monitor.url());
}

// As by a scheduler in a killed one's place that is ended before it has the job's port.
TEST_F(MonitorUrlTest, StaysThatOfAKilledJobWhenNobodyHasTakenItOver) {
  std::string left;
  {
    JobMonitor killed(job_, out_);
    killed.Announce();
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    left = text.str();
  }
  std::ofstream(path_) << left;
  { const JobMonitor interrupted(job_, out_); }
  std::ostringstream text;
  text << std::ifstream(path_).rdbuf();
  EXPECT_EQ(text.str(), left);
}

// By which it can be told from one that has its port when the job was killed.
TEST_F(MonitorUrlTest, NamesTheMonitorOfAJobWhoeverItsSchedulerIs) {
  const auto announce = [this] {
    JobMonitor monitor(job_, out_);
    monitor.Announce();
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  };
  const std::string left = announce();
  const std::string identity = ParseMonitorFile(left).identity;
  EXPECT_EQ(identity.size(), 16u);
  EXPECT_NE(ParseMonitorFile(announce()).identity, identity) << "another job's";
  std::ofstream(path_) << left;
  EXPECT_EQ(ParseMonitorFile(announce()).identity, identity);
}

// A directory in its place is for a full disk.
TEST_F(MonitorUrlTest, ThatCanNotBeWrittenIsNoEnd) {
  std::filesystem::create_directories(path_ + "/full");
  JobMonitor monitor(job_, out_);
  monitor.Announce();
  monitor.Publish(SteadyNow());
  EXPECT_EQ(nlohmann::json::parse(FetchStatus(ParseMonitorAddress(monitor.url())))["job"], "job");
}

}  // namespace
}  // namespace poseidon
