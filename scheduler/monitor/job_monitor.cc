#include "scheduler/monitor/job_monitor.h"

#include <glog/logging.h>

#include <filesystem>

#include "core/atomic_file.h"
#include "core/error.h"
#include "core/files/regular_file.h"
#include "core/http/access.h"
#include "core/steady_now.h"
#include "scheduler/monitor/monitor_client.h"

namespace poseidon {
namespace {

// Often enough to follow, rarely enough to cost nothing.
constexpr Duration kPublishInterval = std::chrono::milliseconds(500);

MonitorOptions OptionsOf(const Monitor& monitor) {
  const std::string token = monitor.token_file().empty() ? "" : ReadToken(monitor.token_file());
  return {monitor.address(), monitor.port(), token};
}

// Empty if there is none, or it can't be read.
std::string TextIn(const std::string& url_file) {
  try {
    return ReadRegularFile(url_file, ExitCode::kFailure);
  } catch (const Error&) {
    return "";
  }
}

// Of the monitor that has left this file; 0 if there is none, or it does not tell.
int PortLeftIn(const std::string& url_file) {
  try {
    const std::string text = TextIn(url_file);
    return ParseMonitorAddress(text.substr(0, text.find('\n'))).port;
  } catch (const Error&) {
    return 0;
  }
}

}  // namespace

JobMonitor::JobMonitor(const Job& job, const std::string& out)
    : tracker_(job, SteadyNow()), url_file_(out.empty() ? "" : out + "/" + kUrlFile) {
  Listen(job.monitor());
  const std::string& token_file = job.monitor().token_file();
  where_ = url() + "\n" +
           (token_file.empty() ? "" : std::filesystem::absolute(token_file).string() + "\n");
}

void JobMonitor::Listen(const Monitor& monitor) {
  const MonitorOptions options = OptionsOf(monitor);
  MonitorOptions before = options;
  if (options.port == 0 && !url_file_.empty()) before.port = PortLeftIn(url_file_);
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
  try {
    WriteFileAtomically(url_file_, where_);
  } catch (const Error& error) {
    LOG(WARNING) << error.what() << "; the monitor is at " << url()
                 << ", where poseidon status does not find it by the directory";
  }
}

JobMonitor::~JobMonitor() {
  board_.Close();
  server_.reset();
  std::error_code ignored;
  if (!url_file_.empty() && TextIn(url_file_) == where_) {
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
