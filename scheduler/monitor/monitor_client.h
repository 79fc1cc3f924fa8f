// Asks a monitor for a job's status.
#pragma once

#include <string>

namespace poseidon {

// Where a monitor is, and what it wants to know.
struct MonitorAddress {
  std::string host;
  int port = 0;
  std::string token;  // empty: none
};

// "http://host:port/", "host:port" or "port" of this machine; the host may be "[::1]". Throws
// ConfigError for anything else.
MonitorAddress ParseMonitorAddress(const std::string& text);

// Whether nothing listens there, as it is when a monitor's process has ended. Waits a few seconds
// at most; one that does not answer by then may still be there.
bool RefusesConnections(const MonitorAddress& address);

// What /api/job serves now. Waits a few seconds at most. Throws Error that says why there is no
// answer. `follower`: a word of letters and digits under which the caller asks again and again, so
// that it is told of the job's end, too; empty: it asks once.
std::string FetchStatus(const MonitorAddress& address, const std::string& follower = "");

}  // namespace poseidon
