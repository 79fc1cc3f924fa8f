// JobMonitor: the monitor of a scheduler's program: what it hears of the job goes in, and whoever
// asks over HTTP is answered.
//
//   JobMonitor monitor(job, out);
//   std::cout << monitor.url();
//   monitor.Announce();  // once nobody else can be the job's scheduler
//   monitor.tracker().OnProgress(progress, SteadyNow());
//   monitor.Publish(SteadyNow());  // again and again
//   monitor.End(end, SteadyNow());
#pragma once

#include <optional>
#include <string>

#include "proto/job.pb.h"
#include "scheduler/monitor/job_status.h"
#include "scheduler/monitor/monitor_client.h"
#include "scheduler/monitor/monitor_server.h"
#include "scheduler/monitor/status_board.h"

namespace poseidon {

// For one thread.
class JobMonitor {
 public:
  // The file in the output directory that says where the monitor of a running job is (MonitorFile).
  static constexpr const char* kUrlFile = "monitor.url";

  // Serves as job.monitor says, and until the first Publish that the job is about to begin: what
  // another scheduler has written down is to be restored before, so that nothing that is counted
  // falls to 0 and comes back. `out` is the output directory, empty: there is none. Where any port
  // will do it is that of the scheduler before, if that one was killed and so has left its file,
  // and its identity in any case: whoever looks at it sees the job go on. Throws ConfigError if the
  // token can't be read, or nothing can listen there.
  JobMonitor(const Job& job, const std::string& out);
  // Waits for those who follow the job, as MonitorServer does; meanwhile the file says where it is.
  // One that another monitor has written stays, and so does any if this one has not announced.
  ~JobMonitor();
  JobMonitor(const JobMonitor&) = delete;
  JobMonitor& operator=(const JobMonitor&) = delete;

  const std::string& url() const { return server_->url(); }
  // Writes the file; that it can't be written is a warning. A scheduler that was started by mistake
  // beside that of the job ends before it comes to this, and leaves the job's file as it is.
  void Announce();
  StatusTracker& tracker() { return tracker_; }
  // Shows what the tracker knows, if that has not been done just now.
  void Publish(Time now);
  // Shows it for the last time.
  void End(const wire::End& end, Time now);

 private:
  // `left`: what the scheduler before has left.
  void Listen(const Monitor& monitor, const MonitorFile& left);

  StatusTracker tracker_;
  StatusBoard board_;
  std::string url_file_;  // empty: there is none
  MonitorFile where_;     // what it says
  bool announced_ = false;
  std::optional<MonitorServer> server_;  // until the end
  Time published_{};
};

}  // namespace poseidon
