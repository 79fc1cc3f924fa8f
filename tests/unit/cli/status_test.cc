// Where `poseidon status DIR` asks, and what it shows whom.
#include "cli/jobs/status.h"

#include <gflags/gflags.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/command_line.h"
#include "cli/output/status_text.h"
#include "core/error.h"
#include "core/http/http_server.h"
#include "core/steady_now.h"
#include "scheduler/monitor/job_monitor.h"
#include "scheduler/monitor/status_json.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kToken = "0123456789abcdef";

class MonitorOfDirectoryTest : public testing::Test {
 protected:
  MonitorOfDirectoryTest() {
    const std::string token = directory_.Write("token", std::string(kToken) + "\n");
    chmod(token.c_str(), S_IRUSR | S_IWUSR);
    url_file_ = directory_.Write(JobMonitor::kUrlFile, "http://node7:9780/\n" + token + "\n");
  }

  TemporaryDirectory directory_;
  std::string url_file_;
};

TEST_F(MonitorOfDirectoryTest, IsAskedWithTheTokenThatItsOwnerNames) {
  const MonitorAddress address = MonitorOf(directory_.path(), "");
  EXPECT_EQ(address.host, "node7");
  EXPECT_EQ(address.token, kToken);
}

// Who has written the file could have any secret of this user's sent to any host.
TEST_F(MonitorOfDirectoryTest, OfAnotherUserIsNotShownWhatItNames) {
  constexpr uid_t kNobody = 65534;
  if (chown(url_file_.c_str(), kNobody, -1) != 0) GTEST_SKIP() << "only root gives files away";
  const std::string message = MessageOf<ConfigError>([&] { MonitorOf(directory_.path(), ""); });
  EXPECT_THAT(message, HasSubstr(url_file_ + " belongs to another user"));
  EXPECT_THAT(message, HasSubstr("--token_file"));
  const std::string own = directory_.Write("own", "fedcba9876543210\n");
  chmod(own.c_str(), S_IRUSR | S_IWUSR);
  EXPECT_EQ(MonitorOf(directory_.path(), own).token, "fedcba9876543210");
}

TEST(StatusWatchTest, ClearsOnlyWhatTakesEscapes) {
  EXPECT_TRUE(CanBeCleared(true, "xterm-256color"));
  EXPECT_FALSE(CanBeCleared(false, "xterm-256color"));
  EXPECT_FALSE(CanBeCleared(true, "dumb"));
  EXPECT_FALSE(CanBeCleared(true, ""));
  EXPECT_FALSE(CanBeCleared(true, nullptr));
}

TEST(StatusTextTest, HasTheRateOfASlowNetAndTheTimeLeftOnceItIsKnown) {
  JobStatus status;
  status.job = "large";
  status.iterations = 50;
  EXPECT_THAT(StatusText(StatusJson(status)), Not(HasSubstr(" left")));
  status.images_per_second = 0.25;
  status.iteration_ms = 800;
  status.slowest_ms = 1000;
  const std::string text = StatusText(StatusJson(status));
  EXPECT_THAT(text, HasSubstr("about 50 s left\n"));
  EXPECT_THAT(text, HasSubstr(", 0.25 images/s, 800.00 ms an iteration"));
}

// A job that was killed has left the file of its monitor, whose port is the next job's by now.
class OtherMonitorTest : public testing::Test {
 protected:
  OtherMonitorTest() : monitor_(Options(), directory_.Path("running")) {
    std::filesystem::create_directory(directory_.Path("running"));
    monitor_.Announce();
    monitor_.Publish(SteadyNow());
    MonitorFile left;
    left.url = monitor_.url();
    left.identity = "0123456789abcdef";
    directory_.Write("killed/" + std::string(JobMonitor::kUrlFile), FormatMonitorFile(left));
    left.identity.clear();
    directory_.Write("earlier/" + std::string(JobMonitor::kUrlFile), FormatMonitorFile(left));
  }

  static Job Options() {
    Job job;
    job.set_name("running");
    job.mutable_monitor()->set_port(0);
    return job;
  }
  MonitorAddress Address(const std::string& directory) const {
    return MonitorOf(directory_.Path(directory), "");
  }

  const TemporaryDirectory directory_;
  JobMonitor monitor_;
};

TEST_F(OtherMonitorTest, IsNotShownAsThatOfAKilledJob) {
  EXPECT_EQ(nlohmann::json::parse(FetchStatus(Address("running")))["job"], "running");
  EXPECT_FALSE(HasGone(Address("running")));
  EXPECT_THAT(MessageOf<Error>([&] { FetchStatus(Address("killed")); }),
              HasSubstr("another program answers at " + monitor_.url() +
                        " than this job's monitor; has the job ended"));
  EXPECT_TRUE(HasGone(Address("killed")));
}

// A scheduler of before says only where its monitor is.
TEST_F(OtherMonitorTest, IsShownWhereTheFileDoesNotSayWhose) {
  EXPECT_EQ(nlohmann::json::parse(FetchStatus(Address("earlier")))["job"], "running");
  EXPECT_FALSE(HasGone(Address("earlier")));
}

// Where the working directory has a directory out.
class OnlyRunningJobTest : public testing::Test {
 protected:
  OnlyRunningJobTest() { std::filesystem::current_path(directory_.path()); }
  ~OnlyRunningJobTest() override { std::filesystem::current_path(before_); }

  // A job's output directory that says of itself that the job runs.
  void AddJob(const std::string& name, const std::string& url) const {
    directory_.Write("out/" + name + "/" + JobMonitor::kUrlFile, url + "\n");
  }
  static std::string Refusal() {
    std::ostringstream out;
    return MessageOf<Error>([&] { RunCommand({"status"}, out); });
  }

  const std::filesystem::path before_ = std::filesystem::current_path();
  const TemporaryDirectory directory_;
};

TEST_F(OnlyRunningJobTest, APageInADirectoryThatIsNotThereIsRefusedBefore) {
  const gflags::FlagSaver saver;
  std::ostringstream out;
  const auto refusal = [&out](const std::string& page) {
    return MessageOf<ConfigError>([&] { RunCommand({"status", "--page=" + page}, out); });
  };
  const std::string page = directory_.Path("none/x.html");
  EXPECT_EQ(refusal(page), "--page is " + page + ", and there is no directory " +
                               directory_.Path("none") + "; make it, or name another file");
  const std::string notes = directory_.Write("notes.txt", "");
  EXPECT_EQ(refusal(notes + "/x.html"),
            "--page is " + notes + "/x.html, and " + notes + " is no directory; name another file");
  // What is wrong with that is said when it is written; here no job runs.
  std::filesystem::create_symlink("loop", directory_.Path("loop"));
  EXPECT_THAT(refusal(directory_.Path("loop/x.html")), StartsWith("no job with a monitor runs"));
}

// `kill -9` of `poseidon run` leaves the file behind.
TEST_F(OnlyRunningJobTest, IsNoneWhoseMonitorHasGone) {
  HttpOptions options;
  options.address = "127.0.0.1";
  HttpServer server(options);
  const std::string gone = "http://127.0.0.1:1/";  // nothing listens there
  server.Start();
  AddJob("killed", gone);
  EXPECT_THAT(Refusal(), HasSubstr("no monitor answers at " + gone));
  AddJob("killed too", gone);
  EXPECT_THAT(Refusal(), HasSubstr("no job with a monitor runs with its output in out/"));
  AddJob("running", server.url());
  EXPECT_THAT(Refusal(),
              HasSubstr("the monitor at " + server.url() + " refuses (HTTP status 404)"));
  AddJob("another", server.url());
  EXPECT_THAT(Refusal(), HasSubstr("several jobs run; name one of out/"));
  EXPECT_THAT(Refusal(), Not(HasSubstr("killed")));
}

}  // namespace
}  // namespace poseidon
