#include "launch/host_query.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>

#include "core/child_process.h"
#include "core/files/log_lines.h"
#include "core/process/program_directory.h"
#include "core/steady_now.h"
#include "core/text/utf8.h"
#include "launch/scratch_directory.h"

namespace poseidon {
namespace {

// A short one, as clocks are compared by it.
constexpr Duration kPollInterval = std::chrono::milliseconds(5);
// What ssh ends with if there is no connection, and a shell if its program can't be started.
constexpr int kConnectionFailed = 255;
constexpr int kCanNotStart = 127;
// What each script's output begins with. A login shell may write before it whatever its files tell
// it to, or refuse the user with words and a code of its own.
constexpr std::string_view kAnswer = "poseidon asks:\n";
// As many remote shells as any machine can start at once.
constexpr size_t kMostAtATime = 64;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// One question under way.
class Asked {
 public:
  Asked(std::string name, std::vector<std::string> command, const ScratchDirectory& directory,
        size_t number)
      : number_(number), output_(directory.path() + "/" + std::to_string(number) + ".out") {
    ChildOptions child;
    child.name = std::move(name);
    child.command = std::move(command);
    child.log = directory.path() + "/" + std::to_string(number) + ".log";
    child.output = output_;
    answer_.asked = std::chrono::system_clock::now();
    begun_ = SteadyNow();
    process_.emplace(std::move(child));
  }

  size_t number() const { return number_; }

  // The answer, once there is one.
  std::optional<HostAnswer> Take(Duration deadline) {
    const std::optional<ExitStatus>& status = process_->Poll();
    if (!status && SteadyNow() - begun_ < deadline) return std::nullopt;
    answer_.answered = std::chrono::system_clock::now();
    if (!status) {
      answer_.failure =
          "has not answered within " + std::to_string(static_cast<int>(ToSeconds(deadline))) + " s";
    } else if (status->signal != 0 || status->code == kConnectionFailed ||
               status->code == kCanNotStart) {
      const std::string said = LastLines(process_->log(), 1);
      answer_.failure = said.empty() ? "the remote shell " + status->ToString() : Sentence(said);
    }
    const std::string output = ReadAll(output_);
    const size_t found = output.find(kAnswer);
    if (found != std::string::npos) {
      answer_.text = output.substr(found + kAnswer.size());
    } else if (answer_.failure.empty()) {
      answer_.failure = Refusal(*status);
    }
    return std::move(answer_);
  }

 private:
  // Of a line.
  static std::string Sentence(const std::string& line) {
    return Printable(line.substr(0, line.find_last_not_of("\r\n.") + 1));
  }
  // Of whoever has ended without running the script.
  std::string Refusal(const ExitStatus& status) const {
    std::string said = LastLines(process_->log(), 1);
    if (said.empty()) said = LastLines(output_, 1);
    return "the login shell runs no command: " +
           (said.empty() ? "it " + status.ToString() : Sentence(said));
  }

  size_t number_;
  std::string output_;
  HostAnswer answer_;
  Time begun_;
  std::optional<ChildProcess> process_;
};

std::string InWorkingDirectory(const std::string& script) {
  return EnterWorkingDirectory() + "\n" + script;
}

// The script, for /bin/sh, whose output can be told from what others write.
std::string Marked(const std::string& script) {
  return "echo " + ShellQuoted(kAnswer.substr(0, kAnswer.size() - 1)) + "\n" + script;
}

std::vector<HostAnswer> Ask(const std::vector<std::vector<std::string>>& commands,
                            const std::vector<std::string>& names, Duration deadline,
                            Interruption* interruption) {
  const ScratchDirectory directory;
  std::vector<HostAnswer> answers(commands.size());
  std::vector<std::unique_ptr<Asked>> asked;
  for (size_t next = 0; next < commands.size() || !asked.empty();) {
    if (interruption != nullptr && interruption->Pending()) throw Interrupted();
    while (next < commands.size() && asked.size() < kMostAtATime) {
      asked.push_back(std::make_unique<Asked>(names[next], commands[next], directory, next));
      ++next;
    }
    for (auto& question : asked) {
      if (std::optional<HostAnswer> answer = question->Take(deadline)) {
        answers[question->number()] = std::move(*answer);
        question.reset();
      }
    }
    std::erase(asked, nullptr);
    if (!asked.empty()) std::this_thread::sleep_for(kPollInterval);
  }
  return answers;
}

}  // namespace

const char* const kAllowanceFunctions = R"sh(
root=
groups() {
  while IFS=: read -r number controllers path; do
    # Also by each controller: kernels name several in another order than the directory has.
    for hierarchy in "$controllers" $(echo "$controllers" | tr , ' '); do
      below=${hierarchy:+/$hierarchy}${path%/}
      while echo "$root/sys/fs/cgroup$below" && [ -n "$below" ]; do below=${below%/*}; done
    done
  done < "$root/proc/self/cgroup"
} 2>/dev/null
first_of() { cat "$1" 2>/dev/null || cat "$2" 2>/dev/null || echo none; }
usable_cores() {
  groups | {
    least=$(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc)
    while read -r group; do
      [ -r "$group/cpu.max" ] && read -r quota period < "$group/cpu.max" || {
        quota=$(first_of "$group/cpu.cfs_quota_us")
        period=$(first_of "$group/cpu.cfs_period_us")
      }
      case $quota in none | max | -1) continue ;; esac
      cores=$((quota / period))
      [ $cores -ge 1 ] || cores=1
      [ $cores -ge $least ] || least=$cores
    done
    echo $least
  }
}
usable_memory() {
  groups | {
    least=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' "$root/proc/meminfo")
    while read -r group; do
      limit=$(first_of "$group/memory.max" "$group/memory.limit_in_bytes")
      case $limit in none | max) continue ;; esac
      used=$(first_of "$group/memory.current" "$group/memory.usage_in_bytes")
      idle=$(sed -n 's/^\(total_\)*inactive_file //p' "$group/memory.stat" 2>/dev/null | tail -n 1)
      left=$(((limit - used + ${idle:-0}) / 1024))
      [ $left -ge 0 ] || left=0
      [ $left -ge $least ] || least=$left
    done
    echo $least
  }
}
)sh";

std::vector<HostAnswer> AskHosts(const RemoteShell& shell,
                                 const std::vector<HostQuestion>& questions, Duration deadline,
                                 Interruption* interruption) {
  std::vector<std::vector<std::string>> commands;
  std::vector<std::string> names;
  for (const HostQuestion& question : questions) {
    std::vector<std::string> command = shell.command;
    command.push_back(question.host);
    command.push_back(LoginShellCommand(Marked(InWorkingDirectory(question.script))));
    commands.push_back(std::move(command));
    names.push_back(question.host);
  }
  return Ask(commands, names, deadline, interruption);
}

HostAnswer AskHere(const std::string& script, Duration deadline, Interruption* interruption) {
  return Ask({{"/bin/sh", "-c", Marked(script)}}, {"this machine"}, deadline, interruption).front();
}

std::vector<std::string> NamesOf(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) {
    if (std::find(names.begin(), names.end(), host.name) == names.end()) {
      names.push_back(host.name);
    }
  }
  return names;
}

std::map<std::string, int> AskForCores(const RemoteShell& shell, const std::vector<Host>& hosts,
                                       Duration deadline, Interruption* interruption) {
  std::vector<HostQuestion> questions;
  for (const std::string& name : NamesOf(hosts)) {
    questions.push_back({name, kAllowanceFunctions + std::string("usable_cores\n")});
  }
  const std::vector<HostAnswer> answers = AskHosts(shell, questions, deadline, interruption);
  std::map<std::string, int> cores;
  std::string problems;
  for (size_t i = 0; i < questions.size(); ++i) {
    const std::string& name = questions[i].host;
    if (!answers[i].failure.empty()) {
      problems += "\n  " + name + ": " + answers[i].failure;
    } else if (!(std::istringstream(answers[i].text) >> cores[name])) {
      problems += "\n  " + name + ": its shell says no number";
    }
  }
  if (problems.empty()) return cores;
  throw Error(ExitCode::kFailure,
              "hosts can't be asked how many cores each of their workers may use; see that `" +
                  shell.command.front() + " HOST nproc` works:" + problems);
}

}  // namespace poseidon
