// What libtorch throws, as an error of this project: a sentence, where what() of c10::Error ends
// with a stack trace.
//
//   return AsErrors(device, has_graphs, [&] { return net.loss(); });
//
// Thread-safe.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/Exception.h>

#include <exception>
#include <string>

namespace poseidon {

// What has happened, without a stack trace.
std::string WordsOf(const std::exception& error);

// Throws Error with what has happened on `device`. Where no memory is left it says what to do; has
// the engine CUDA graphs, which have memory of their own, it may go without them.
[[noreturn]] void ThrowAsError(const c10::Error& error, c10::Device device, bool has_graphs);

// Does `call`, and has what libtorch throws of it thrown as Error.
template <typename Call>
decltype(auto) AsErrors(c10::Device device, bool has_graphs, const Call& call) {
  try {
    return call();
  } catch (const c10::Error& error) {
    ThrowAsError(error, device, has_graphs);
  }
}

}  // namespace poseidon
