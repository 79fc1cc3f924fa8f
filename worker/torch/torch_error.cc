#include "worker/torch/torch_error.h"

#include "core/error.h"

namespace poseidon {
namespace {

std::string NameOfDevice(c10::Device device) {
  return device.is_cuda() ? "cuda device " + std::to_string(device.index()) : "the host";
}

}  // namespace

std::string WordsOf(const std::exception& error) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&error);
  if (of_torch == nullptr) return error.what();
  const std::string words = of_torch->what_without_backtrace();
  // Behind CUDA's own words libtorch says how to read the stack trace.
  return words.substr(0, words.find("\nCUDA kernel errors might"));
}

void ThrowAsError(const c10::Error& error, c10::Device device, bool has_graphs) {
  const std::string words = WordsOf(error);
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) == nullptr) {
    throw Error(ExitCode::kFailure, NameOfDevice(device) + ": " + words);
  }
  throw Error(ExitCode::kFailure,
              NameOfDevice(device) + " has no memory left: " + words.substr(0, words.find('\n')) +
                  "; use a smaller batch" + (has_graphs ? ", or training.cuda_graphs: false" : ""));
}

}  // namespace poseidon
