// Asks a monitor for a job's status, and where a job says that its monitor is.
#pragma once

#include <string>

namespace poseidon {

// Where a monitor is, and what it wants to know.
struct MonitorAddress {
  std::string host;
  int port = 0;
  std::string token;     // empty: none
  std::string identity;  // MonitorFile's; empty: whichever is there is meant
};

// What the file in a job's output directory says of its monitor (JobMonitor::kUrlFile), a line
// each.
struct MonitorFile {
  std::string url;
  std::string token_file;  // empty: it asks for no token
  // A word drawn for the job, by which its monitor can be told from one that has the port when the
  // job was killed; empty: of a scheduler that did not say.
  std::string identity;
};

// Lines that are missing are empty.
MonitorFile ParseMonitorFile(const std::string& text);
std::string FormatMonitorFile(const MonitorFile& file);

// "http://host:port/", "host:port" or "port" of this machine; the host may be "[::1]". Throws
// ConfigError for anything else.
MonitorAddress ParseMonitorAddress(const std::string& text);

// Whether nothing listens there, as it is when a monitor's process has ended, or another program
// does than the one that is meant. Waits a few seconds at most; one that does not answer by then
// may still be there.
bool HasGone(const MonitorAddress& address);

// What /api/job serves now. Waits a few seconds at most. Throws Error that says why there is no
// answer. The token is sent to no other monitor than the one that is meant. `follower`: a word of
// letters and digits under which the caller asks again and again, so that it is told of the job's
// end, too; empty: it asks once.
std::string FetchStatus(const MonitorAddress& address, const std::string& follower = "");

}  // namespace poseidon
