#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "caffe_adapter/files/found_snapshot.h"
#include "core/error.h"
#include "tests/unit/failing_call.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

// Those of access(), by machine.
const std::vector<uint32_t> kAccessCalls = {
#ifdef SYS_access
    SYS_access,
#endif
    SYS_faccessat,
};

// As for a user who may not list the directory, or not enter it: nobody waits for that to pass, and
// no training begins anew for it. Root may read all, so the calls are denied.
TEST(SnapshotDeathTest, WhatMayNotBeReadIsNeitherTriedAgainNorPassedOver) {
  const TemporaryDirectory directory;
  const std::string prefix = directory.Path("x");
  const std::string newest = directory.Write("x_iter_10.solverstate", "");
  const auto find_without = [&prefix](const std::vector<uint32_t>& calls) {
    for (const uint32_t call : calls) BreakCall({.number = call, .error = EACCES});
    try {
      FindLatestSnapshot(prefix);
    } catch (const Error& error) {
      std::cerr << error.what();
      _exit(static_cast<int>(error.exit_code()));
    }
    _exit(0);
  };
  const testing::ExitedWithCode is_wrong(static_cast<int>(ExitCode::kConfigError));
  const std::string why = ": Permission denied; let user " + std::to_string(geteuid()) + " read it";
  EXPECT_EXIT(find_without({SYS_openat}), is_wrong, "can't read " + directory.path() + why);
  EXPECT_EXIT(find_without(kAccessCalls), is_wrong, "can't read " + newest + why);
}

}  // namespace
}  // namespace poseidon
