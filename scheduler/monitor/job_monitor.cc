#include "scheduler/monitor/job_monitor.h"

#include <filesystem>

#include "core/atomic_file.h"
#include "core/http/access.h"
#include "core/steady_now.h"

namespace poseidon {
namespace {

// Often enough to follow, rarely enough to cost nothing.
constexpr Duration kPublishInterval = std::chrono::milliseconds(500);

MonitorOptions OptionsOf(const Monitor& monitor) {
  const std::string token = monitor.token_file().empty() ? "" : ReadToken(monitor.token_file());
  return {monitor.address(), monitor.port(), token};
}

}  // namespace

JobMonitor::JobMonitor(const Job& job, const std::string& out) : tracker_(job, SteadyNow()) {
  server_.emplace(OptionsOf(job.monitor()), board_);
  Publish(SteadyNow());
  if (out.empty()) return;
  const std::string& token_file = job.monitor().token_file();
  url_file_ = out + "/" + kUrlFile;
  WriteFileAtomically(
      url_file_,
      server_->url() + "\n" +
          (token_file.empty() ? "" : std::filesystem::absolute(token_file).string() + "\n"));
}

JobMonitor::~JobMonitor() {
  board_.Close();
  server_.reset();
  std::error_code ignored;
  if (!url_file_.empty()) std::filesystem::remove(url_file_, ignored);
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
