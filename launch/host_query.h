// What hosts say of themselves: a script for their shell, run on each of them at the same time.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "core/program.h"
#include "core/time.h"
#include "launch/host_list.h"
#include "launch/remote_shell.h"

namespace poseidon {

// Shell functions for scripts, which write what UsableCores() and AvailableMemory() are for who
// runs them, but for `ulimit -v`: usable_cores, a number, and usable_memory, KiB. A variable `root`
// that is set behind them stands before the paths of /proc and /sys, for tests.
extern const char* const kAllowanceFunctions;

struct HostQuestion {
  std::string host;    // for the remote shell
  std::string script;  // for /bin/sh there, in this program's working directory if there is one
};

struct HostAnswer {
  std::string text;     // what the script has written to its standard output, and nobody else
  std::string failure;  // why there is no answer, as the remote shell has it; empty: there is one
  // Of this machine's clock; the script has run between them.
  std::chrono::system_clock::time_point asked;
  std::chrono::system_clock::time_point answered;
};

// An answer for each question, in their order. A host that takes longer than `deadline` has failed.
// A script may end with any code but 255. Throws Interrupted(); `interruption` may be null. Belongs
// to one thread.
//
//   AskHosts(shell, {{"node0", "nproc"}, {"node1", "nproc"}}, Seconds(30), &interruption)
std::vector<HostAnswer> AskHosts(const RemoteShell& shell,
                                 const std::vector<HostQuestion>& questions, Duration deadline,
                                 Interruption* interruption);

// Asks this machine the same, without a remote shell.
HostAnswer AskHere(const std::string& script, Duration deadline, Interruption* interruption);

// The hosts' names, each once.
std::vector<std::string> NamesOf(const std::vector<Host>& hosts);

// How many cores each of the hosts gives its user, by its name. Throws Error that names all which
// do not say it, and Interrupted() as AskHosts does.
std::map<std::string, int> AskForCores(const RemoteShell& shell, const std::vector<Host>& hosts,
                                       Duration deadline, Interruption* interruption);

}  // namespace poseidon
