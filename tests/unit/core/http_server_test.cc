// The server on real sockets of the loopback device. (What is served, and whom it is refused to:
// tests/unit/scheduler/monitor_server_test.cc.)
#include "core/http/http_server.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/steady_now.h"
#include "tests/unit/http_client.h"

namespace poseidon {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

HttpOptions OnLoopback() {
  HttpOptions options;
  options.address = "127.0.0.1";
  return options;
}

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() : server_(std::make_unique<HttpServer>(OnLoopback())) {
    server_->Get("/healthz", [](const httplib::Request&, httplib::Response& response) {
      Say(response, 200, "ok");
    });
    server_->Get("/breaks", [](const httplib::Request&, httplib::Response& response) {
      response.set_content_provider("text/plain", [](size_t, httplib::DataSink&) -> bool {
        throw std::runtime_error("out of ideas");
      });
    });
    server_->Start();
  }

  std::string Ask(const std::string& path, const std::string& headers = "") const {
    HttpClient client(server_->port());
    client.Send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n");
    return client.Read();
  }

  static long Threads() {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  }

  const long threads_before_ = Threads();
  std::unique_ptr<HttpServer> server_;
};

// What listens at `port` does so no more.
void EndListening(int port) {
  DIR* const open = opendir("/proc/self/fd");
  ASSERT_NE(open, nullptr);
  while (const dirent* const entry = readdir(open)) {
    const int socket = std::atoi(entry->d_name);
    int listens = 0;
    socklen_t size = sizeof listens;
    getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size);
    sockaddr_in address{};
    size = sizeof address;
    getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
    if (listens != 0 && ntohs(address.sin_port) == port) shutdown(socket, SHUT_RDWR);
  }
  closedir(open);
}

// The library would make a copy of the body for each of thousands of ranges, and read long ones by
// an expression whose depth is their length.
TEST_F(HttpServerTest, GivesWholeAnswersToThoseWhoAskForRanges) {
  std::string many = "bytes=-";
  for (int i = 0; i < 4000; ++i) many += ",-";
  for (const std::string& range : {std::string("bytes=0-0"), many,
                                   "bytes=" + std::string(8000, '1') + "-", std::string("x")}) {
    for (const std::string name : {"Range", "rANGE"}) {
      const std::string answer = Ask("/healthz", name + ": " + range + "\r\n");
      EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 ")) << name << ": " << range.substr(0, 20);
      EXPECT_THAT(answer, HasSubstr("\r\n\r\nok\n"));
    }
  }
}

TEST_F(HttpServerTest, OutlivesAnAnswerThatBreaks) {
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Ask("/breaks"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask("/healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, StopsWhenItsListenerHasEnded) {
  EXPECT_THAT(Ask("/healthz"), StartsWith("HTTP/1.1 200 "));
  EndListening(server_->port());
  const Time deadline = SteadyNow() + Seconds(30);
  while (Threads() > threads_before_ && SteadyNow() < deadline) std::this_thread::yield();
  const Time begin = SteadyNow();
  server_->Stop();
  EXPECT_LT(SteadyNow() - begin, HttpServer::kPatience);
}

// Otherwise a cluster's manager, which asks for /healthz, takes the program for dead.
TEST_F(HttpServerTest, SilentClientsHoldUpNobodyForLong) {
  std::vector<std::unique_ptr<HttpClient>> silent;
  for (int i = 0; i < 48; ++i) silent.push_back(std::make_unique<HttpClient>(server_->port()));
  const Time begin = SteadyNow();
  EXPECT_THAT(Ask("/healthz"), StartsWith("HTTP/1.1 200 "));
  EXPECT_LT(SteadyNow() - begin, 2 * HttpServer::kPatience);  // instead of three times
}

// That limit is none for root. Whatever else the user runs counts, too.
TEST(HttpServerDeathTest, SaysThatThereAreTooFewThreadsForIt) {
  constexpr uid_t kNobody = 65534;
  const auto start = [] {
    if (geteuid() == 0 && setuid(kNobody) != 0) _exit(9);
    const rlimit few = {4, 4};
    setrlimit(RLIMIT_NPROC, &few);
    try {
      HttpServer(OnLoopback()).Start();
    } catch (const Error& error) {
      std::cerr << error.what();
      _exit(static_cast<int>(error.exit_code()));
    }
    _exit(0);
  };
  EXPECT_EXIT(start(), testing::ExitedWithCode(static_cast<int>(ExitCode::kFailure)),
              "^the monitor can't start its 16 threads and one that listens .Resource temporarily "
              "unavailable.; raise the limit .ulimit -u, ");
}

}  // namespace
}  // namespace poseidon
