// Watching over a job's daemons until the last one has ended, whoever started them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/child_process.h"
#include "core/program.h"
#include "core/time.h"

namespace poseidon {

struct WatchOptions {
  // How long a daemon may take to notice by itself that another has gone.
  Duration heartbeat_deadline = Seconds(10);
  // When the job is ended because it takes too long, from now.
  Duration deadline = Duration::max();
  Interruption* interruption = nullptr;  // may be null
  // News for people, a sentence each; may be empty.
  std::function<void(const std::string&)> say;
};

struct WatchResult {
  // The job's: of the daemon that failed, if one did; kPeerLost if it was killed.
  ExitCode code = ExitCode::kSuccess;
  // Who has a story of its own to tell, by index: one for each cause.
  std::vector<size_t> culprits;
};

// `daemons` has the scheduler first. If one dies, the others are given the heartbeat deadline to
// notice by themselves; whoever is still there then is killed. An interruption and the deadline end
// the job through the scheduler.
WatchResult WatchDaemons(std::vector<ChildProcess>& daemons, const WatchOptions& options);

// What a process that was killed by a signal of its own (abort, a failed CHECK, an exception that
// nobody caught) has said of it in its log; "" if nothing.
std::string LastWords(const std::string& path);

// The last lines of a file that are not empty, at most so many, each with a line's end.
std::string LastLines(const std::string& path, size_t most);

}  // namespace poseidon
