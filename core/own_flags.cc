#include "core/own_flags.h"

#include <gflags/gflags.h>

#include <cstdlib>

#include "core/program.h"

namespace poseidon {
namespace {

bool IsOn(const char* flag) {
  std::string value;
  return gflags::GetCommandLineOption(flag, &value) && value == "true";
}

}  // namespace

void ReadOwnFlags(const std::string& usage, const std::string& file, int* argc, char*** argv) {
  EndOnSignals();
  gflags::SetUsageMessage(usage);
  gflags::ParseCommandLineNonHelpFlags(argc, argv, true);
  if (IsOn("help") || IsOn("helpshort")) {
    gflags::ShowUsageWithFlagsRestrict((*argv)[0], file.c_str());
    std::exit(EXIT_SUCCESS);
  }
  gflags::HandleCommandLineHelpFlags();
}

}  // namespace poseidon
