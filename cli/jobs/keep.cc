#include "cli/jobs/keep.h"

#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "core/child_process.h"
#include "core/process/bounded_output.h"
#include "core/process/program_directory.h"
#include "launch/daemon_keeper.h"

namespace poseidon {
namespace {

constexpr const char* kScheduler = "poseidon_scheduler";

// The daemon beside this program, unless a path names another.
std::string PathOf(const std::string& program) {
  std::string beside = ProgramDirectory() + "/" + program;
  const bool is_name = program.find('/') == std::string::npos;
  if (is_name && std::filesystem::exists(beside)) return beside;
  return FindProgram(program);
}

void CheckDaemon(const std::vector<std::string>& daemon) {
  const std::string name = std::filesystem::path(daemon.front()).filename();
  if (name != kScheduler && name != "poseidon_server" && name != "poseidon_worker") {
    throw ConfigError(
        "poseidon keep can start poseidon_scheduler, poseidon_server and "
        "poseidon_worker again, as only they take their place in the job; \"" +
        daemon.front() + "\" is none of them");
  }
  for (const std::string& argument : daemon) {
    for (const char* flag : {"incarnation", "replaces"}) {
      const size_t name_begin = argument.find_first_not_of('-');
      const bool is_flag = name_begin == 1 || name_begin == 2;
      if (!is_flag || !argument.substr(name_begin).starts_with(flag)) continue;
      throw ConfigError(std::string("leave --") + flag +
                        " out: poseidon keep gives it to each process of the daemon itself");
    }
  }
}

}  // namespace

ExitCode KeepVerb() {
  throw ConfigError(
      "there is no daemon to keep; name it and its flags behind \"--\", such as `poseidon keep -- "
      "poseidon_worker --config=job.prototxt`");
}

ExitCode KeepProgramVerb(const std::vector<std::string>& daemon) {
  CheckDaemon(daemon);
  const BoundedOutput output(std::cout, STDOUT_FILENO);
  Interruption interruption(KeptSignalEffects(), Interruption::kSupervisorPatience);
  KeepOptions options;
  options.command = daemon;
  options.command.front() = PathOf(daemon.front());
  options.says_whom_it_replaces = std::filesystem::path(daemon.front()).filename() != kScheduler;
  options.interruption = &interruption;
  options.say = [](const std::string& news) { std::cout << news << std::endl; };
  const ExitStatus status = KeepDaemon(options);
  // Where somebody has asked for its end a signal may have ended it.
  return status.signal != 0 ? ExitCode::kInterrupted : static_cast<ExitCode>(status.code);
}

}  // namespace poseidon
