// What benchmarks say to --help: what they measure and the arguments of their own, not those of
// every library that they are linked with.
//
//   bench::ParseFlags(&argc, &argv, "Times a thing.");
//
// Both end the process with 0 where --help is asked for.
#pragma once

#include <gflags/gflags.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace poseidon::bench {

inline bool AsksForHelp(int argc, char** argv) {
  return std::any_of(argv + 1, argv + argc, [](const std::string_view argument) {
    return argument == "--help" || argument == "-help" || argument == "-h";
  });
}

// For programs whose arguments are positions: `usage` says all.
inline void ShowHelp(int argc, char** argv, const char* usage) {
  if (!AsksForHelp(argc, argv)) return;
  std::puts(usage);
  std::exit(0);
}

// For programs with gflags, which are defined in tests/bench.
inline void ParseFlags(int* argc, char*** argv, const char* usage) {
  gflags::SetUsageMessage(usage);
  if (AsksForHelp(*argc, *argv)) {
    gflags::ShowUsageWithFlagsRestrict((*argv)[0], "tests/bench/");
    std::exit(0);
  }
  gflags::ParseCommandLineFlags(argc, argv, true);
}

}  // namespace poseidon::bench
