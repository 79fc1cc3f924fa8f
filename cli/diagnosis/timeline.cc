#include "cli/diagnosis/timeline.h"

#include <iostream>

#include "core/atomic_file.h"
#include "core/text/utf8.h"
#include "diagnosis/job_files.h"
#include "diagnosis/timeline.h"

namespace poseidon {

ExitCode WriteTimeline(const std::string& directory, const std::string& out) {
  if (directory.empty()) throw ConfigError("name the output directory of a job");
  const JobFiles job = ReadJobFiles(directory);
  const Timeline timeline = MakeTimeline(job);
  const std::string path = out.empty() ? directory + "/timeline.json" : out;
  WriteFileAtomically(path, timeline.json);
  std::cout << "wrote " << Printable(path) << ": " << timeline.nodes << " processes, "
            << timeline.arrows << " frames from their send to their arrival; open it in "
            << "https://ui.perfetto.dev\n";
  for (const std::string& clock : timeline.clocks) std::cout << "  clock of " << clock << "\n";
  for (const std::string& unreadable : job.unreadable) {
    std::cout << "  left out: " << Printable(unreadable) << "\n";
  }
  std::cout << std::flush;
  return ExitCode::kSuccess;
}

}  // namespace poseidon
