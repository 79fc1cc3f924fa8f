#include "core/arithmetic/blas_core.h"

#include <cblas.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace poseidon {

std::optional<std::string> BetterBlasCore(std::string_view chosen, bool has_avx2, bool has_avx512) {
  if (chosen != "Prescott" || !has_avx2) return std::nullopt;
  return has_avx512 ? "SkylakeX" : "Haswell";
}

std::optional<std::string> BetterBlasCore() {
#ifdef __x86_64__
  const bool has_avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  const bool has_avx512 =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512cd") != 0 &&
      __builtin_cpu_supports("avx512bw") != 0 && __builtin_cpu_supports("avx512dq") != 0 &&
      __builtin_cpu_supports("avx512vl") != 0;
  return BetterBlasCore(openblas_get_corename(), has_avx2, has_avx512);
#else
  return std::nullopt;
#endif
}

void TellBetterBlasCore() {
  const std::optional<std::string> core = BetterBlasCore();
  if (core) setenv("OPENBLAS_CORETYPE", core->c_str(), /*overwrite=*/0);
}

void RestartWithBetterBlasCore(char** argv) {
  if (getenv("OPENBLAS_CORETYPE") != nullptr || !BetterBlasCore()) return;
  TellBetterBlasCore();
  // By its own path: started as /proc/self/exe it would be called "exe" by ps and pkill.
  std::error_code error;
  execv(std::filesystem::read_symlink("/proc/self/exe", error).c_str(), argv);
}

}  // namespace poseidon
