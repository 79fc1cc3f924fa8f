// The verbs of `poseidon`: what each does, which flags it takes, what its help says.
#pragma once

#include <string>
#include <vector>

#include "core/error.h"

namespace poseidon {

// A flag as a verb takes it. The flag itself is gflags': type, default and description.
struct VerbFlag {
  std::string name;
  std::string value;  // what help calls its value, "FILE"; empty for a switch
  std::string text;   // instead of gflags' description, where a verb has its own use for the flag
};

struct Verb {
  std::string name;     // a word, or two: "plan", "convert csv"
  std::string summary;  // one line
  std::string usage;    // the command line, without the program's name
  std::string text;     // what is worth knowing before the first use
  std::vector<VerbFlag> flags;
  // The flag that a word without dashes sets; empty: there is none.
  std::string word_flag = {};
  std::string example;  // command lines that work from the repository root
  ExitCode (*run)();    // with the flags set; throws Error
  // Likewise with what stands behind "--": a program and its arguments. Null: takes none.
  ExitCode (*run_program)(const std::vector<std::string>& program) = nullptr;
};

// In the order in which a newcomer wants to read about them.
const std::vector<Verb>& Verbs();

}  // namespace poseidon
