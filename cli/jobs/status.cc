#include "cli/jobs/status.h"

#include <gflags/gflags.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>
#include <thread>
#include <vector>

#include "cli/input/flags.h"
#include "cli/output/experiment_progress.h"
#include "cli/output/status_text.h"
#include "cli/planning/plan.h"
#include "core/atomic_file.h"
#include "core/files/regular_file.h"
#include "core/http/access.h"
#include "core/process/standard_output.h"
#include "core/steady_now.h"
#include "core/text/utf8.h"
#include "scheduler/monitor/job_monitor.h"
#include "scheduler/monitor/monitor_client.h"
#include "scheduler/monitor/page.h"
#include "scheduler/monitor/status_json.h"
#include "scheduler/monitor/summary_status.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::chrono::seconds kWatchInterval(1);
// A scheduler that has died is started again after a second, or more if it has died before.
constexpr Duration kMostAway = Seconds(30);

std::string UrlFileIn(const std::string& directory) {
  return (fs::path(directory) / JobMonitor::kUrlFile).string();
}

// Its token is not asked for, which only those need who are answered.
bool IsGone(const std::string& directory) {
  try {
    const MonitorFile file =
        ParseMonitorFile(ReadRegularFile(UrlFileIn(directory), ExitCode::kConfigError));
    MonitorAddress address = ParseMonitorAddress(file.url);
    address.identity = file.identity;
    return HasGone(address);
  } catch (const Error&) {
    return false;  // what is wrong is said when it is asked
  }
}

// The output directories below out/ whose jobs run now. The file stays behind if its job is killed;
// a job that is the only one may also be out of reach.
std::vector<std::string> RunningJobs() {
  std::vector<std::string> found;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("out", none)) {
    if (fs::exists(UrlFileIn(entry.path()), none)) found.push_back(entry.path());
  }
  if (found.size() > 1) std::erase_if(found, IsGone);
  return found;
}

// What is meant by no address at all: the one job that runs.
std::string OnlyRunningJob() {
  const std::vector<std::string> jobs = RunningJobs();
  if (jobs.size() == 1) return jobs.front();
  if (jobs.empty()) {
    throw ConfigError(
        "no job with a monitor runs with its output in out/; name the job's output directory, or "
        "the address that its scheduler has said");
  }
  std::string all;
  for (const std::string& job : jobs) all += " " + job;
  throw ConfigError("several jobs run; name one of" + all);
}

Json Parse(const std::string& text) {
  Json status = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!status.is_object() || !status.contains("nodes")) {
    throw Error(ExitCode::kFailure, "what has answered is no monitor of a job");
  }
  return status;
}

// Of a job that runs, or else of one that has ended. `follower`: as FetchStatus has it.
Json StatusIn(const std::string& directory, const std::string& follower) {
  const std::string summary = (fs::path(directory) / "summary.json").string();
  if (fs::exists(UrlFileIn(directory))) {
    try {
      return Parse(FetchStatus(MonitorOf(directory, FLAGS_token_file), follower));
    } catch (const Error&) {
      // It has just ended, or was killed with the file still there.
      if (!fs::exists(summary)) throw;
    }
  }
  if (!fs::exists(summary)) {
    throw ConfigError(directory +
                      " has neither the monitor.url of a job that runs nor the summary.json of one "
                      "that has ended; name the job's output directory");
  }
  return StatusOfSummary(ReadRegularFile(summary, ExitCode::kDataError, kMostFileBytes), summary);
}

// Asks once; what is meant by --address is settled now.
std::function<Json()> SourceOf(const std::string& named) {
  const std::string job = named.empty() ? OnlyRunningJob() : named;
  const std::string follower = FLAGS_watch ? std::to_string(std::random_device{}()) : "";
  if (fs::is_directory(job)) return [=] { return StatusIn(job, follower); };
  MonitorAddress address = ParseMonitorAddress(job);
  if (!FLAGS_token_file.empty()) address.token = ReadToken(FLAGS_token_file);
  return [=] { return Parse(FetchStatus(address, follower)); };
}

void Show(const Json& status, bool json) {
  if (json) {
    std::cout << JsonText(status) << std::endl;
  } else {
    std::cout << StatusText(status) << std::flush;
  }
}

// A monitor that has answered and does so no more may be back soon: what it says then.
Json AskAgain(const std::function<Json()>& source) {
  const Time give_up = SteadyNow() + kMostAway;
  for (bool told = false;; told = true) {
    try {
      return source();
    } catch (const Error& error) {
      if (SteadyNow() >= give_up) throw;
      if (!told) {
        std::cerr << error.what() << "\nasking again for at most " << RoughTime(kMostAway)
                  << std::endl;
      }
    }
    std::this_thread::sleep_for(kWatchInterval);
  }
}

ExitCode Watch(const std::function<Json()>& source, bool json) {
  const bool clears = !json && CanBeCleared(isatty(STDOUT_FILENO) != 0, std::getenv("TERM"));
  for (bool first = true;; first = false) {
    const Json status = first ? source() : AskAgain(source);
    if (clears) std::cout << "\x1b[H\x1b[2J";
    Show(status, json);
    if (!status.value("end", Json()).is_null()) return ExitCode::kSuccess;
    if (!clears && !json) std::cout << std::endl;
    if (HasOutputFailed()) return ExitCode::kSuccess;  // unless RunProgram has to say why
    std::this_thread::sleep_for(kWatchInterval);
  }
}

// Before anybody is asked, and in words without the temporary name that is written to first.
void CheckPage(const std::string& path) {
  const fs::path directory = fs::path(path).parent_path();
  std::error_code ignored;
  const fs::file_status found = fs::status(directory, ignored);
  // Of one that can't be looked at, who writes into it says why.
  if (directory.empty() || fs::is_directory(found) || !fs::status_known(found)) return;
  throw ConfigError("--page is " + path + ", and " +
                    (fs::exists(found) ? directory.string() + " is no directory; name another file"
                                       : "there is no directory " + directory.string() +
                                             "; make it, or name another file"));
}

}  // namespace

MonitorAddress MonitorOf(const std::string& directory, const std::string& token_file) {
  const std::string path = UrlFileIn(directory);
  const OwnedText file = ReadOwnedText(path, ExitCode::kFailure);
  const MonitorFile monitor = ParseMonitorFile(file.text);
  MonitorAddress address = ParseMonitorAddress(monitor.url);
  address.identity = monitor.identity;
  if (!token_file.empty()) {
    address.token = ReadToken(token_file);
  } else if (!monitor.token_file.empty()) {
    if (!file.trusted) {
      throw ConfigError(path +
                        " belongs to another user, and whoever has written it says that the "
                        "first line of " +
                        Printable(monitor.token_file) + " is to be sent to " +
                        Printable(monitor.url) + "; if that is right, give --token_file");
    }
    address.token = ReadToken(monitor.token_file);
  }
  return address;
}

bool CanBeCleared(bool is_terminal, const char* type) {
  return is_terminal && type != nullptr && *type != '\0' && type != std::string_view("dumb");
}

ExitCode StatusVerb() {
  const bool json = JsonFromFlags();
  if (FLAGS_watch && !FLAGS_page.empty()) {
    throw ConfigError("--page writes a file once; leave --watch out, or open the monitor's page");
  }
  CheckPage(FLAGS_page);
  const std::function<Json()> source = SourceOf(FLAGS_address);
  if (FLAGS_watch) return Watch(source, json);
  const Json status = source();
  if (FLAGS_page.empty()) {
    Show(status, json);
    return ExitCode::kSuccess;
  }
  WriteFileAtomically(FLAGS_page, StoredPage(JsonText(status)));
  std::cout << "page: " << FLAGS_page << std::endl;
  return ExitCode::kSuccess;
}

}  // namespace poseidon
