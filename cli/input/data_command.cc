#include "cli/input/data_command.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <sstream>

#include "caffe_adapter/data/sample_shapes.h"
#include "caffe_adapter/net/net.h"
#include "core/named_file.h"
#include "core/process/program_directory.h"
#include "launch/remote_shell.h"

namespace poseidon {
namespace {

namespace fs = std::filesystem;

constexpr char kOutFlag[] = "--out=";

// As short as it can be: the path from here where the program is below.
std::string ThisProgram() {
  const std::string program = ProgramDirectory() + "/poseidon";
  std::error_code ignored;
  const std::string from_here = fs::proximate(program, ignored).string();
  return from_here.empty() || from_here.starts_with("..") ? program : from_here;
}

// For a shell, in quotes only where it needs them.
std::string Word(const std::string& text) {
  const bool plain = std::all_of(text.begin(), text.end(), [](unsigned char letter) {
    return std::isalnum(letter) ||
           std::string_view("-_=./,:+%@").find(static_cast<char>(letter)) != std::string_view::npos;
  });
  return plain ? text : ShellQuoted(text);
}

// A word of the command, which the job config was written with, as it is to be written here.
std::string HereWritten(const JobConfig& config, const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos || word.starts_with(kOutFlag)) return word;
  const auto found = FindNamedFile(config.path, word.substr(equals + 1));
  return found ? Word(word.substr(0, equals + 1) + *found) : word;
}

// Whether what is at `path` is, or may be, in what a flag --out of the command names.
bool IsIn(const std::string& out, const std::string& path) {
  // What a shell makes of it is not known here.
  if (out.find_first_of("'\"$~`\\") != std::string::npos) return true;
  std::error_code ignored;
  const fs::path directory = fs::absolute(out, ignored).lexically_normal();
  const fs::path made = fs::absolute(path, ignored).lexically_normal();
  const fs::path below = made.lexically_relative(directory);
  return !below.empty() && *below.begin() != "..";
}

// Whether the job's command may make what is at `path`: not if all that it makes is elsewhere.
bool MayMake(const JobConfig& config, const std::string& path) {
  std::istringstream words(config.job.training().data_command());
  bool says_where = false;
  for (std::string word; words >> word;) {
    if (!word.starts_with(kOutFlag)) continue;
    if (IsIn(word.substr(sizeof kOutFlag - 1), path)) return true;
    says_where = true;
  }
  return !says_where;
}

std::string HowToMake(const JobConfig& config, const std::string& program) {
  std::error_code ignored;
  const std::string here = "in the working directory, " + fs::current_path(ignored).string() + ", ";
  if (!config.job.training().has_data_command()) {
    return here + "a `poseidon convert` makes it (`poseidon convert --help`)";
  }
  std::istringstream words(config.job.training().data_command());
  std::string command;
  for (std::string word; words >> word;) {
    if (command.empty() && word == "poseidon") {
      command = Word(program);
    } else {
      command += (command.empty() ? "" : " ") + HereWritten(config, word);
    }
  }
  return here + "this makes it: " + command;
}

}  // namespace

std::string HowToMakeData(const JobConfig& config, const SolverNet& net) {
  DescribeOptions options;
  options.state = net.state;
  options.locate = net.locate;
  for (const int i : LayersInPhase(net.net, net.phase, options)) {
    const caffe::LayerParameter& layer = net.net.layer(i);
    // Conversions make LMDBs.
    if (layer.type() == "Data" && layer.data_param().backend() != caffe::DataParameter::LMDB) {
      continue;
    }
    if (DataIsMissing(layer) && MayMake(config, DataPath(layer))) {
      return "; " + HowToMake(config, ThisProgram());
    }
  }
  return "";
}

std::string HowToMakeDataThere(const JobConfig& config, const std::string& programs) {
  return HowToMake(config, programs + "/poseidon");
}

}  // namespace poseidon
