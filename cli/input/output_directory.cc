#include "cli/input/output_directory.h"

#include <filesystem>

#include "cli/input/flags.h"
#include "core/error.h"

namespace poseidon {

std::string OutputDirectory(const std::string& name, const std::string& config) {
  if (!FLAGS_out.empty()) return FLAGS_out;
  std::string directory = "out/" + name;
  const std::string normal = std::filesystem::path(directory).lexically_normal().string();
  if (normal == "out/") {
    throw ConfigError(config + ": name is \"" + name +
                      "\", and results would go to out itself, among other jobs' directories; "
                      "give a name, or say where to with --out");
  }
  if (normal.starts_with("out/")) return directory;
  throw ConfigError(config + ": name is \"" + name + "\", and results would go to " + normal +
                    "; choose a name without \"..\", or say where to with --out");
}

std::string JobDirectory(const JobConfig& config) {
  std::string directory = OutputDirectory(config.job.name(), config.path);
  std::error_code none;
  const bool is_there = std::filesystem::equivalent(directory + "/job.prototxt", config.path, none);
  if (!is_there || config.job.has_run()) return directory;
  throw ConfigError(config.path +
                    " would be written over by the config as it is run, which goes to job.prototxt "
                    "in the output directory; choose another directory with --out, or rename the "
                    "file");
}

}  // namespace poseidon
