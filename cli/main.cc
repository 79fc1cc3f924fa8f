// poseidon: the command. `poseidon --help` says what it can do.
#include <iostream>

#include "cli/command_line.h"
#include "core/program.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return poseidon::RunProgram("poseidon", argv[0],
                              [&arguments] { return poseidon::RunCommand(arguments, std::cout); });
}
