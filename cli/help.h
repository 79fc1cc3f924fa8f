// The texts of --help.
#pragma once

#include <string>

#include "cli/verbs.h"

namespace poseidon {

// What `poseidon --help` prints.
std::string ProgramHelp();

// What `poseidon convert --help` prints: the verbs whose name starts with `group`.
std::string GroupHelp(const std::string& group);

// What `poseidon plan --help` prints. Defaults are those of gflags.
std::string VerbHelp(const Verb& verb);

// `text` in lines of at most 80 columns, each starting with `indent` spaces, but for the first,
// which starts at column `start` (0: indented too).
std::string Wrap(const std::string& text, size_t indent, size_t start = 0);

}  // namespace poseidon
