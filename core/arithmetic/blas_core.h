// Which kernels OpenBLAS is to take. It chooses by the processor's model when it is loaded. For a
// model younger than itself it takes those of 2004, "Prescott", with vectors of 4 floats, though
// the processor may have 16: Debian 12's 0.3.21 does so on an Emerald Rapids, where AlexNet then
// trains at 0.7 of the rate. What a program is told by OPENBLAS_CORETYPE, it believes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace poseidon {

// A name for OPENBLAS_CORETYPE of kernels that the processor can run and that are faster; nullopt
// if OpenBLAS knows the model. The kernels are those of the eldest processor with these
// instructions, which OpenBLAS has long had.
//
//   BetterBlasCore("Prescott", true, false)  // "Haswell"
std::optional<std::string> BetterBlasCore(std::string_view chosen, bool has_avx2, bool has_avx512);
// Of the OpenBLAS of this process, on this processor.
std::optional<std::string> BetterBlasCore();

// Has the program that this process becomes next take the better kernels, unless OPENBLAS_CORETYPE
// is set already. While no other thread reads the environment.
void TellBetterBlasCore();

// Starts this process's program again, told so, if there are better kernels and OPENBLAS_CORETYPE
// is not set; `argv` is main's. It remains the same process, with what it has open. Returns if
// there is nothing to tell, or if the program can't be started, which then goes on as it is. The
// first thing that main does.
void RestartWithBetterBlasCore(char** argv);

}  // namespace poseidon
