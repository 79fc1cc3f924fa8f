#include "launch/remote_shell.h"

#include <filesystem>

namespace poseidon {
namespace {

// For /bin/sh there. Descriptor 3 is the shell's own input, of which the program gets nothing: its
// end means that nobody waits for the program any more. The one who watches it keeps no stream open
// that the remote shell would wait for.
std::string ScriptFor(const RemoteCommand& command) {
  const std::string job = "\"$here\"/job.prototxt";
  const std::string out = "\"$here\"";
  std::string run = ShellQuoted(command.program) + " --config=" + job + " --out=" + out;
  for (const std::string& flag : command.flags) run += " " + ShellQuoted(flag);
  const std::string clean = "rm -rf " + out;
  std::string script = "here=$(mktemp -d " + ShellQuoted(command.directory) +
                       "/poseidon-XXXXXXXXXX) && head -c " + std::to_string(command.job.size()) +
                       " > " + job + " || exit 1\n";
  script += "cd " + ShellQuoted(std::filesystem::current_path().string()) + " 2>/dev/null\n";
  script += "exec 3<&0\n";
  script += run + " </dev/null >&2 3<&- & daemon=$!\n";
  script += "{ while read -r line; do :; done; kill $daemon; sleep 5; kill -9 $daemon; " + clean +
            "; } <&3 >/dev/null 2>&1 3<&- & watcher=$!\n";
  script += "wait $daemon; code=$?; kill $watcher\n";
  if (!command.summary.empty()) script += "cat " + out + "/summary.json\n";
  script += clean + "\nexit $code\n";
  return script;
}

}  // namespace

std::string ShellQuoted(std::string_view text) {
  std::string quoted = "'";
  for (const char letter : text) quoted += letter == '\'' ? "'\\''" : std::string(1, letter);
  return quoted + "'";
}

ChildProcess StartRemotely(const RemoteCommand& command) {
  ChildOptions child;
  child.name = command.name + " on " + command.host;
  child.command = command.shell;
  child.command.push_back(command.host);
  // Whatever shell the user has there.
  child.command.push_back("exec /bin/sh -c " + ShellQuoted(ScriptFor(command)));
  child.log = command.log;
  child.output = command.summary;
  child.piped_input = true;
  ChildProcess process(std::move(child));
  process.Write(command.job);
  return process;
}

}  // namespace poseidon
