#include "worker/torch/torch_error.h"

#include <optional>

#include "core/error.h"

namespace poseidon {
namespace {

std::string NameOfDevice(c10::Device device) {
  return device.is_cuda() ? "cuda device " + std::to_string(device.index()) : "the host";
}

// What has been asked for, if it is memory that lacks.
std::optional<std::string> MemoryAskedFor(const c10::Error& error, const std::string& words) {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr) {
    return words.substr(0, words.find('\n'));
  }
  // The host's allocator throws errors of no type of their own.
  const std::string host_allocator = "DefaultCPUAllocator: ";
  const size_t found = words.find(host_allocator);
  if (found == std::string::npos) return std::nullopt;
  return words.substr(found + host_allocator.size());
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
  const std::optional<std::string> asked_for = MemoryAskedFor(error, words);
  if (!asked_for) throw Error(ExitCode::kFailure, NameOfDevice(device) + ": " + words);
  throw Error(ExitCode::kFailure, NameOfDevice(device) + " has no memory left: " + *asked_for +
                                      "; use a smaller batch" +
                                      (has_graphs ? ", or training.cuda_graphs: false" : ""));
}

}  // namespace poseidon
