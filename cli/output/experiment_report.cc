#include "cli/output/experiment_report.h"

#include <signal.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "core/child_process.h"
#include "core/process/program_directory.h"

namespace poseidon {
namespace {

// How often a signal is looked for.
constexpr std::chrono::milliseconds kReportTick(50);

}  // namespace

bool MakeReport(const std::string& directory, const std::vector<std::string>& arguments,
                Interruption& interruption, std::ostream& out, const std::string& python) {
  const std::string script = SupportFile("poseidon_report/report.py");
  ChildOptions options;
  options.name = "the report";
  try {
    const bool is_there = std::filesystem::exists(python);
    options.command = {is_there ? python : FindProgram("python3"), script, directory};
  } catch (const Error& error) {
    out << "no report: " << error.what() << std::endl;
    return false;
  }
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  options.log = directory + "/report.log";
  options.inherit_output = true;
  ChildProcess report(std::move(options));
  while (!report.Poll()) {
    if (interruption.Pending()) {
      report.Signal(SIGINT);  // so that it leaves nothing half written
      report.Wait();
      throw Interrupted();
    }
    std::this_thread::sleep_for(kReportTick);
  }
  const ExitStatus& status = *report.Poll();
  if (status.ok()) return true;
  out << "no report: " << script << ' ' << status.ToString() << "; see " << report.log()
      << std::endl;
  return false;
}

}  // namespace poseidon
