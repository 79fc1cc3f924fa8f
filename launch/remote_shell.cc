#include "launch/remote_shell.h"

#include <errno.h>
#include <glog/logging.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "core/atomic_file.h"
#include "core/files/log_lines.h"
#include "core/process/program_directory.h"
#include "core/steady_now.h"
#include "core/text/utf8.h"

namespace poseidon {
namespace {

// What ssh ends with if it is not the program's own code.
constexpr int kConnectionFailed = 255;
// The shell's code of a program that a signal has ended is this and the signal's number.
constexpr int kSignalBase = 128;
constexpr int kHighestSignal = 64;

// How long a connection may take.
constexpr Duration kConnectingTime = Seconds(15);

// The line by which a log tells that the program has been started. It is remembered, as somebody
// may empty a log, and weeks may lie between.
constexpr std::string_view kStarted = "poseidon: started in ";

// In the line behind which the result comes, before its number of bytes. A login shell may write
// before it whatever its files tell it to.
constexpr std::string_view kResult = "poseidon: the result of bytes ";

// For /bin/sh there. Descriptor 3 is the shell's own input, of which the program gets nothing: its
// end means that nobody waits for the program any more. The one who watches it keeps no stream open
// that the remote shell would wait for. The program leads a process group, so that what it has
// started ends with it.
std::string ScriptFor(const RemoteShell& shell, const RemoteCommand& command) {
  const std::string out = "\"$here\"";
  const std::string job = out + "/job.prototxt";
  const std::string program = ShellQuoted(command.command.front());
  const std::string directory = ShellQuoted(NamedWorkingDirectory());
  std::string run = program;
  if (command.is_daemon) run += " --config=" + job + " --out=" + out;
  for (size_t i = 1; i < command.command.size(); ++i) run += " " + ShellQuoted(command.command[i]);
  const std::string clean = "rm -rf " + out;
  const auto signal_all = [](const std::string& signal) {
    return "kill -" + signal + " -- -$daemon || kill -" + signal + " $daemon";
  };
  // A banner of the host's need not end with a line, and what the script says begins one.
  std::string script = "echo >&2; here=$(mktemp -d " + ShellQuoted(shell.directory) +
                       "/poseidon-XXXXXXXXXX) || exit 1\nhead -c " +
                       std::to_string(command.job.size()) + " > " + job + " || { echo " +
                       ShellQuoted("can't write the job's file to " + shell.directory +
                                   " on this host; make room there") +
                       " >&2; " + clean + "; exit 1; }\n";
  script += EnterWorkingDirectory() + " || echo there is no directory " + directory +
            " on this host, so paths are looked for in \"$(pwd)\" >&2\n";
  script += "command -v " + program + " >/dev/null || { echo there is no program " + program +
            " on this host, or it may not be executed >&2; " + clean + "; exit 1; }\n";
  script += "export POSEIDON_JOB=" + job + "\n";
  script += "echo " + ShellQuoted(kStarted) + "\"$here\" >&2\n";
  script += "exec 3<&0\n";
  script += "setsid " + run + " </dev/null >&2 3<&- & daemon=$!\n";
  const std::string ask = signal_all("TERM") +
                          "; for second in 1 2 3 4 5; do sleep 1; kill -0 $daemon || break; done; ";
  script += "{ while read -r line; do :; done; " + (command.is_replaced ? "" : ask) +
            signal_all("KILL") + "; " + clean + "; } <&3 >/dev/null 2>&1 3<&- & watcher=$!\n";
  // ssh's own code must not be the program's.
  script += "wait $daemon; code=$?; [ $code -ne " + std::to_string(kConnectionFailed) +
            " ] || code=" + std::to_string(static_cast<int>(ExitCode::kFailure)) + "\n";
  script += "kill -KILL -- -$daemon 2>/dev/null\n";
  if (!command.result.empty()) {
    const std::string result = out + "/" + command.result;
    script += "{ echo " + ShellQuoted(kResult) + "$(cat " + result + " | wc -c); cat " + result +
              "; } 2>/dev/null\n";
  }
  // The watcher goes last, so that it cleans up where this shell is killed before it has.
  script += clean + "\n{ kill $watcher; wait $watcher; } 2>/dev/null\nexit $code\n";
  return script;
}

char OctalDigit(int number) { return static_cast<char>('0' + (number & 7)); }

// What the end of the remote shell says of the program there.
ExitStatus Interpret(const ExitStatus& shell, const ChildProcess& process) {
  if (shell.signal != 0) return shell;
  if (shell.code == kConnectionFailed) {
    const std::string said = LastLines(process.log(), 1);
    const std::string why =
        said.empty() ? "" : ": " + Printable(said.substr(0, said.find_last_not_of("\r\n") + 1));
    if (!HasStartedRemotely(process)) {
      return {static_cast<int>(ExitCode::kFailure), 0, "could not be started there" + why};
    }
    return {0, SIGHUP, "has lost its connection" + why};
  }
  const int signal = shell.code - kSignalBase;
  // A program of this project ends so by itself when it is interrupted.
  const bool interrupted = shell.code == static_cast<int>(ExitCode::kInterrupted);
  if (signal < 1 || signal > kHighestSignal || interrupted) return shell;
  return {0, signal};
}

// What stands behind kResult. Throws Error where only a part of it has come.
std::string ResultIn(const std::string& path, bool ended_well) {
  // Else the connection may be what has cut it off.
  const std::string advice = ended_well ? "; is there room for " + path + "?" : "";
  std::ifstream file(path, std::ios::binary);
  std::string line;
  size_t found = std::string::npos;
  while (found == std::string::npos && std::getline(file, line)) found = line.rfind(kResult);
  if (found == std::string::npos) {
    if (!ended_well) return "";
    throw Error(ExitCode::kFailure, "nothing of it has come" + advice);
  }
  size_t size = 0;
  std::istringstream(line.substr(found + kResult.size())) >> size;
  std::string result(std::istreambuf_iterator<char>(file), {});
  if (result.size() == size) return result;
  throw Error(ExitCode::kFailure, std::to_string(result.size()) + " of " + std::to_string(size) +
                                      " bytes have come" + advice);
}

// Leaves in the file the whole result, or nothing where the program has left none, or has ended
// badly before it was brought. That it can't be kept is no failure of the program's; a part of it
// would be taken for the whole.
void KeepResult(const std::string& path, const std::string& name, bool ended_well) {
  std::error_code ignored;
  try {
    const std::string result = ResultIn(path, ended_well);
    // There may be room for one of them, and who watches all nodes does not wait for a disk.
    std::filesystem::remove(path, ignored);
    WriteFileQuickly(path, result);
  } catch (const Error& error) {
    std::filesystem::remove(path, ignored);
    LOG(ERROR) << "the result of " << name << " is lost: " << error.what();
  }
}

}  // namespace

std::string DefaultRemoteShell(Duration silence) {
  constexpr Duration kInterval = Seconds(5);  // between two signs of life that are asked for
  return "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ControlPath=none -o ServerAliveInterval=" +
         std::to_string(kInterval / Seconds(1)) +
         " -o ServerAliveCountMax=" + std::to_string(std::max<int64_t>(1, silence / kInterval));
}

RemoteShell MakeRemoteShell(const std::string& command, const std::string& programs) {
  std::istringstream stream(command);
  RemoteShell shell;
  shell.command = {std::istream_iterator<std::string>(stream), {}};
  if (shell.command.empty()) {
    throw ConfigError("the remote shell has no name; expected such as \"ssh\"");
  }
  shell.command.front() = FindProgram(shell.command.front());
  shell.programs = programs;
  return shell;
}

std::string ShellQuoted(std::string_view text) {
  std::string quoted = "'";
  for (const char letter : text) quoted += letter == '\'' ? "'\\''" : std::string(1, letter);
  return quoted + "'";
}

std::string LoginShellCommand(std::string_view script) {
  std::string command = "exec /bin/sh -c 'eval \"$(printf %b \"";
  for (const char letter : script) {
    const auto byte = static_cast<unsigned char>(letter);
    const bool is_plain = byte >= ' ' && byte <= '~' &&
                          std::string_view("!\"$'\\`").find(letter) == std::string_view::npos;
    if (is_plain) {
      command += letter;
    } else {
      command += {'\\', '0', OctalDigit(byte >> 6), OctalDigit(byte >> 3), OctalDigit(byte)};
    }
  }
  return command + "\")\"'";
}

std::string EnterWorkingDirectory() {
  const std::string named = NamedWorkingDirectory();
  const std::string here = std::filesystem::current_path().string();
  std::string script = "cd " + ShellQuoted(named) + " 2>/dev/null";
  if (here != named) script += " || cd " + ShellQuoted(here) + " 2>/dev/null";
  return script;
}

ChildProcess StartRemotely(const RemoteShell& shell, const RemoteCommand& command) {
  ChildOptions child;
  child.name = command.name + " on " + command.host;
  child.command = shell.command;
  child.command.push_back(command.host);
  child.command.push_back(LoginShellCommand(ScriptFor(shell, command)));
  child.log = command.log;
  child.output = command.output;
  child.piped_input = true;
  child.log_mark = kStarted;
  child.interpret = [output = command.output](const ExitStatus& end, const ChildProcess& process) {
    if (!output.empty()) KeepResult(output, process.name(), end.ok());
    return Interpret(end, process);
  };
  ChildProcess process(std::move(child));
  process.Write(command.job);
  return process;
}

bool HasStartedRemotely(const ChildProcess& process) { return process.log_has_mark(); }

void AwaitRoom(const std::vector<ChildProcess*>& shells) {
  const auto on_its_way = [](ChildProcess* shell) {
    return !shell->Poll() && !HasStartedRemotely(*shell);
  };
  const Time deadline = SteadyNow() + kConnectingTime;
  while (std::ranges::count_if(shells, on_its_way) >= kMostConnecting && SteadyNow() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace poseidon
