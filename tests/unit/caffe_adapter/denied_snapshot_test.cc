#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "caffe_adapter/files/found_snapshot.h"
#include "core/error.h"
#include "proto/caffe.pb.h"
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

// Another user's, for one that may read the solverstate.
TEST(SnapshotDeathTest, AModelThatMayNotBeReadIsNotPassedOver) {
  const TemporaryDirectory directory;
  caffe::SolverState state;
  state.set_iter(10);
  state.set_learned_net("x_iter_10.caffemodel");
  directory.Write("x_iter_10.solverstate", state.SerializeAsString());
  const std::string model = directory.Write("x_iter_10.caffemodel", "");
  ASSERT_EQ(chmod(directory.path().c_str(), 0755), 0);
  ASSERT_EQ(chmod(model.c_str(), 0), 0);
  const auto find = [&directory] {
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && setuid(kNobody) != 0) _exit(1);
    try {
      FindLatestSnapshot(directory.Path("x"));
    } catch (const Error& error) {
      std::cerr << error.what();
      _exit(static_cast<int>(error.exit_code()));
    }
    _exit(0);
  };
  EXPECT_EXIT(find(), testing::ExitedWithCode(static_cast<int>(ExitCode::kConfigError)),
              "can't read " + model + ": Permission denied; let user");
}

}  // namespace
}  // namespace poseidon
