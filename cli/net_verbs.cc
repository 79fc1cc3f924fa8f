#include "cli/net_verbs.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "cli/input/flags.h"
#include "cli/input/input_file.h"
#include "core/arithmetic/blas_core.h"
#include "core/process/program_directory.h"

namespace poseidon {
namespace {

void AddIfGiven(const char* flag, const std::string& value, std::vector<std::string>& arguments) {
  if (FlagGiven(flag)) arguments.push_back(std::string("--") + flag + "=" + value);
}

ExitCode Become(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), ProgramDirectory() + "/poseidon_net");
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  TellBetterBlasCore();
  execv(pointers[0], pointers.data());
  throw Error(ExitCode::kFailure, "can't start " + arguments[0] + ": " + std::strerror(errno) +
                                      "; it is part of builds with libtorch");
}

std::vector<std::string> CommonArguments(const char* verb) {
  CheckInputFile(FLAGS_solver);
  CheckInputFile(FLAGS_net);
  std::vector<std::string> arguments = {verb};
  AddIfGiven("solver", FLAGS_solver, arguments);
  AddIfGiven("net", FLAGS_net, arguments);
  AddIfGiven("iterations", std::to_string(FLAGS_iterations), arguments);
  AddIfGiven("threads", std::to_string(FLAGS_threads), arguments);
  return arguments;
}

}  // namespace

ExitCode TimeVerb() {
  std::vector<std::string> arguments = CommonArguments("time");
  AddIfGiven("batch", std::to_string(FLAGS_batch), arguments);
  AddIfGiven("out", FLAGS_out, arguments);
  return Become(std::move(arguments));
}

ExitCode TestVerb() {
  std::vector<std::string> arguments = CommonArguments("test");
  AddIfGiven("weights", FLAGS_weights, arguments);
  return Become(std::move(arguments));
}

}  // namespace poseidon
