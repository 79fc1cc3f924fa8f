#include "core/arithmetic/blas_core.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace poseidon {
namespace {

TEST(BlasCore, IsBetterOnlyForAProcessorThatOpenBlasDoesNotKnow) {
  for (const bool has_avx2 : {false, true}) {
    for (const bool has_avx512 : {false, true}) {
      for (const char* known : {"Haswell", "Zen", "SkylakeX", "Cooperlake", "Sandybridge"}) {
        EXPECT_EQ(BetterBlasCore(known, has_avx2, has_avx512), std::nullopt) << known;
      }
    }
  }
  EXPECT_EQ(BetterBlasCore("Prescott", false, false), std::nullopt);  // it is that old
  EXPECT_EQ(BetterBlasCore("Prescott", true, false), "Haswell");
  EXPECT_EQ(BetterBlasCore("Prescott", true, true), "SkylakeX");
}

// Told so, the library has them: the name is one that it knows.
TEST(BlasCore, IsTakenByAProgramThatIsToldSo) {
  const std::optional<std::string> better = BetterBlasCore();
  if (!better) GTEST_SKIP() << "OpenBLAS knows this processor";
  const std::string command = "OPENBLAS_CORETYPE=" + *better + " OPENBLAS_VERBOSE=2 /proc/" +
                              std::to_string(getpid()) + "/exe --gtest_list_tests 2>&1 >/dev/null";
  std::FILE* const output = popen(command.c_str(), "r");
  ASSERT_NE(output, nullptr);
  std::array<char, 4096> text{};
  const size_t size = std::fread(text.data(), 1, text.size() - 1, output);
  pclose(output);
  EXPECT_NE(std::string(text.data(), size).find("Core: " + *better), std::string::npos)
      << text.data();
}

// Also of a program that has started again.
TEST(BlasCore, LeavesTheProgramItsName) {
  std::string name;
  std::getline(std::ifstream("/proc/self/comm"), name);
  const std::string file = std::filesystem::read_symlink("/proc/self/exe").filename();
  EXPECT_EQ(name, file.substr(0, 15));  // as much of it as Linux keeps
}

// It starts again once, and then has them.
TEST(BlasCore, IsTakenByAProgramThatStartsAgain) {
  const std::optional<std::string> better = BetterBlasCore();
  if (!better) GTEST_SKIP() << "OpenBLAS knows this processor";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    unsetenv("OPENBLAS_CORETYPE");
    setenv("OPENBLAS_VERBOSE", "2", 1);
    std::string name = "blas_core_test";
    std::string test = "--gtest_filter=BlasCore.LeavesTheProgramItsName";
    char* argv[] = {name.data(), test.data(), nullptr};
    RestartWithBetterBlasCore(argv);
    _exit(3);  // has not
  }
  close(ends[1]);
  std::string text;
  std::array<char, 4096> part{};
  for (ssize_t size = 0; (size = read(ends[0], part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<size_t>(size));
  }
  close(ends[0]);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_NE(text.find("Core: " + *better), std::string::npos) << text;
}

}  // namespace
}  // namespace poseidon
