#include "scheduler/monitor/job_monitor.h"

#include <glog/logging.h>

#include <cinttypes>
#include <cstdio>
#include <filesystem>

#include "core/atomic_file.h"
#include "core/error.h"
#include "core/files/regular_file.h"
#include "core/http/access.h"
#include "core/steady_now.h"
#include "transport/membership/node_setup.h"

namespace poseidon {
namespace {

// Often enough to follow, rarely enough to cost nothing.
constexpr Duration kPublishInterval = std::chrono::milliseconds(500);

MonitorOptions OptionsOf(const Monitor& monitor) {
  const std::string token = monitor.token_file().empty() ? "" : ReadToken(monitor.token_file());
  return {.address = monitor.address(), .port = monitor.port(), .token = token};
}

// Empty if there is none, or it can't be read.
std::string TextIn(const std::string& url_file) {
  try {
    return ReadRegularFile(url_file, ExitCode::kFailure);
  } catch (const Error&) {
    return "";
  }
}

// 0 if it does not tell.
int PortOf(const MonitorFile& file) {
  try {
    return ParseMonitorAddress(file.url).port;
  } catch (const Error&) {
    return 0;
  }
}

// That of the job, if its scheduler before has left one.
std::string IdentityAfter(const MonitorFile& left) {
  constexpr size_t kDigits = 16;
  const bool is_one = left.identity.size() == kDigits &&
                      left.identity.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (is_one) return left.identity;
  char digits[kDigits + 1];
  std::snprintf(digits, sizeof digits, "%016" PRIx64, DrawRandom());
  return digits;
}

}  // namespace

JobMonitor::JobMonitor(const Job& job, const std::string& out)
    : tracker_(job, SteadyNow()), url_file_(out.empty() ? "" : out + "/" + kUrlFile) {
  const MonitorFile left = ParseMonitorFile(url_file_.empty() ? "" : TextIn(url_file_));
  where_.identity = IdentityAfter(left);
  Listen(job.monitor(), left);
  where_.url = url();
  const std::string& token_file = job.monitor().token_file();
  if (!token_file.empty()) where_.token_file = std::filesystem::absolute(token_file).string();
}

void JobMonitor::Listen(const Monitor& monitor, const MonitorFile& left) {
  MonitorOptions options = OptionsOf(monitor);
  options.identity = where_.identity;
  MonitorOptions before = options;
  if (options.port == 0) before.port = PortOf(left);
  if (before.port != options.port) {
    try {
      server_.emplace(before, board_);
      return;
    } catch (const ConfigError& error) {
      LOG(INFO) << "not at the port of the scheduler before: " << error.what();
    }
  }
  server_.emplace(options, board_);
}

void JobMonitor::Announce() {
  if (url_file_.empty()) return;
  announced_ = true;
  try {
    WriteFileAtomically(url_file_, FormatMonitorFile(where_));
  } catch (const Error& error) {
    LOG(WARNING) << error.what() << "; the monitor is at " << url()
                 << ", where poseidon status does not find it by the directory";
  }
}

JobMonitor::~JobMonitor() {
  board_.Close();
  server_.reset();
  std::error_code ignored;
  // Before it has announced the file is that of the scheduler before, whose port it may have got.
  if (announced_ && TextIn(url_file_) == FormatMonitorFile(where_)) {
    std::filesystem::remove(url_file_, ignored);
  }
}

void JobMonitor::Publish(Time now) {
  if (published_ != Time{} && now - published_ < kPublishInterval) return;
  published_ = now;
  board_.Publish(tracker_.status(now));
}

void JobMonitor::End(const wire::End& end, Time now) {
  tracker_.OnEnd(end);
  board_.Publish(tracker_.status(now));
  board_.Close();
}

}  // namespace poseidon
