// Programs on other machines by a remote shell such as ssh, without anything installed there but
// the programs themselves. Functions without state.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/child_process.h"
#include "core/time.h"

namespace poseidon {

// After how long a host that has gone silent is given up by default.
inline constexpr Duration kRemoteSilence = Seconds(15);

// ssh: a host that does not answer is given up after ten seconds, one that has gone silent after
// `silence`, at least five seconds. Each has a connection of its own, whatever the user's config
// says: in one that is shared (ControlMaster) the silence of whoever has made it would count.
std::string DefaultRemoteShell(Duration silence = kRemoteSilence);

// How hosts are reached.
struct RemoteShell {
  std::vector<std::string> command;  // the program's path and flags; the host's name follows
  std::string programs;              // the directory of this project's programs there
  // There: in which each program gets a directory of its own, of a name that nobody can guess, for
  // the job's file and results.
  std::string directory = "/tmp";
};

// From the words of `command`, parted by blanks. Throws Error if there is no such program here.
RemoteShell MakeRemoteShell(const std::string& command, const std::string& programs);

// For /bin/sh on a host: enters this program's working directory, by the path by which it was
// entered here (NamedWorkingDirectory), or else, where only this machine has a link there, by its
// own.
std::string EnterWorkingDirectory();

struct RemoteCommand {
  std::string name;  // of the process, for messages
  std::string host;
  std::vector<std::string> command;  // the program's path there and its flags
  // Whether it is one of this project's daemons, which gets --config and --out; a program of the
  // user's finds the job's file in its environment, POSEIDON_JOB, anyway.
  bool is_daemon = true;
  // Whether another process takes its place when the connection is lost: it is then killed without
  // a word, since an orderly end would end the job.
  bool is_replaced = false;
  std::string job;     // the text of the job's file
  std::string log;     // here: what the program and the remote shell say
  std::string result;  // the name of a file that it leaves in its directory; empty: none is wanted
  // Here: gets that file in the end, whole or, as where the disk is full, not at all, which is
  // logged. Until then there may be what a login shell there prints.
  std::string output;
};

// Sends the job's file to the host and starts the program there in this program's working
// directory, if there is one of that name. It gets a SIGTERM, and at most five seconds later a
// SIGKILL, with all that it has started, when the process that is returned, its input, or the
// connection has gone. In the end its files are removed there.
//
// The process ends as the program there does, but with kFailure for 255, which is ssh's own. A
// connection that is lost once the program has been started is a hang-up: it ends by SIGHUP, and
// says why. One that can't be made, and a program that is not there, make kFailure. The log is
// written by way of this program, so the process is to be polled (ChildOptions::log_mark). Throws
// Error if the remote shell can't be started, or does not read the job's file
// (ChildProcess::kReadingDeadline).
ChildProcess StartRemotely(const RemoteShell& shell, const RemoteCommand& command);

// Whether the program has been started there, as far as Poll has seen; it may have ended since.
bool HasStartedRemotely(const ChildProcess& process);

// How many remote shells to one host may be on their way at once: sshd refuses some of more than
// ten (MaxStartups).
inline constexpr int kMostConnecting = 8;

// Before another StartRemotely to a host: waits until fewer of `shells`, those that were started to
// it, are on their way; for 15 s at most.
void AwaitRoom(const std::vector<ChildProcess*>& shells);

// As one word of a POSIX shell, whatever is in it.
std::string ShellQuoted(std::string_view text);

// A script for /bin/sh as a command for the login shell that the user has there, whichever that is:
// csh takes no newline and no ! inside of quotes, and fish no backslash before one. So the command
// is a line without any of them, from which printf makes the script again.
std::string LoginShellCommand(std::string_view script);

}  // namespace poseidon
