#include "cli/diagnosis/explain.h"

#include <iostream>

#include "core/text/utf8.h"
#include "diagnosis/explanation.h"
#include "diagnosis/job_files.h"

namespace poseidon {

ExitCode ExplainJob(const std::string& directory, bool json) {
  if (directory.empty()) throw ConfigError("name the output directory of a job");
  const Explanation why = Explain(ReadJobFiles(directory));
  std::cout << (json ? ExplanationJson(why) : Printable(ExplanationText(why))) << std::flush;
  return ExitCode::kSuccess;
}

}  // namespace poseidon
