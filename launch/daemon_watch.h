// Watching over a job's daemons until the last one has ended, whoever started them.
#pragma once

#include <functional>
#include <map>
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
  // Starts another process in the place of one that has died, by index, the first, the second and
  // so on; its incarnation is the caller's affair. Throws Error if it can't be started now: that is
  // tried again, as if it had died. Empty: all stay dead.
  std::function<ChildProcess(size_t index, int restarts)> restart;
  // Whether a daemon has come to run, by index, where that is another host's affair. Empty: all
  // have.
  std::function<bool(size_t index)> has_started;
  // Whether the job goes on without a daemon that was killed, by index: it is not started again,
  // and its death is no failure. Empty: without none.
  std::function<bool(size_t index)> goes_on_without;
  // Whether a daemon may leave the job, by index. Where the job goes on without it, one that ends
  // with kInterrupted was ended alone, as by a second SIGTERM, and counts as killed. Empty: none
  // may.
  std::function<bool(size_t index)> may_leave;
  // Tells the scheduler that a daemon is gone, by index, so that the others need not wait for its
  // silence; `cause` is "was killed by signal 6 (SIGABRT): Check failed: ...". Empty: it is not
  // told.
  std::function<void(size_t index, const std::string& cause)> tell_lost;
  // Whom the scheduler has given up since the last call, by index, and why: "no heartbeat for 9 s".
  // Whoever does not end by itself then is killed. Asked twice a second. Empty: nobody.
  std::function<std::map<size_t, std::string>()> given_up;
  // News for people, a sentence each; may be empty.
  std::function<void(const std::string&)> say;
};

struct WatchResult {
  // The job's: of the daemon that failed, if one did; kPeerLost if it was killed.
  ExitCode code = ExitCode::kSuccess;
  // Who has a story of its own to tell, by index: one for each cause.
  std::vector<size_t> culprits;
  // Somebody has asked for the training's end by a signal.
  bool stopped = false;
};

// `daemons` has the scheduler first. One that was killed, or says that the job has gone on without
// it, is started again if the options say how, ever less soon; while there is no scheduler it is
// the only one. One that the scheduler has given up and that still lives, as it was stopped, hangs,
// or is on a host that is beyond reach, is killed, with all that it has started. Of one that the
// job goes on without the scheduler is told. If one dies else, the scheduler is told, and the
// others are given the heartbeat deadline to end by themselves; whoever is still there then is
// killed. If the scheduler dies and is not started again, the others are asked to end. One that was
// started in a dead one's place and is refused has come too late, which is no failure. An
// interruption and the deadline end the job through the scheduler; other requests of signals are
// passed on to it, when there is one.
WatchResult WatchDaemons(std::vector<ChildProcess>& daemons, const WatchOptions& options);

}  // namespace poseidon
