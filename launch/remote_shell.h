// Daemons on other machines by a remote shell such as ssh, without anything installed there but the
// programs themselves. Functions without state.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/child_process.h"

namespace poseidon {

struct RemoteCommand {
  std::string name;                // of the process, for messages
  std::vector<std::string> shell;  // the remote shell's program and flags; the host's name follows
  std::string host;
  std::string program;             // its path there
  std::vector<std::string> flags;  // but --config and --out
  // There: in which it gets one of its own, of a name that nobody can guess, for the job's file
  // and results.
  std::string directory = "/tmp";
  std::string job;      // the text of the job's file
  std::string log;      // here: what the program and the remote shell say
  std::string summary;  // here: gets the summary.json that it leaves; empty: none
};

// Sends the job's file to the host and starts the program there in this program's working
// directory, if there is one of that name. It gets a SIGTERM, and five seconds later a SIGKILL,
// when the process that is returned, or its input, has gone. In the end its files are removed
// there.
ChildProcess StartRemotely(const RemoteCommand& command);

// As one word of a POSIX shell, whatever is in it.
std::string ShellQuoted(std::string_view text);

}  // namespace poseidon
