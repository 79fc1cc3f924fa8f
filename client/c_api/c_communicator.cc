// The C interface's Communicator.
#include <cstdint>
#include <vector>

#include "client/c_api/c_call.h"
#include "poseidon/communicator.h"

struct poseidon_communicator : poseidon::CHandle<poseidon::Communicator> {
  using CHandle::CHandle;
};

namespace poseidon {
namespace {

// Thirty years, which in nanoseconds are still a number of 64 bits.
constexpr double kLongestDeadline = 1e9;

CommunicatorOptions ToOptions(const poseidon_communicator_options& from) {
  if (from.ranks < 1 || from.endpoints == nullptr) {
    throw ConfigError("a communicator of " + std::to_string(from.ranks) +
                      " ranks needs as many endpoints");
  }
  CommunicatorOptions options;
  options.rank = from.rank;
  for (int rank = 0; rank < from.ranks; ++rank) {
    options.endpoints.push_back(TextOf(from.endpoints[rank]));
  }
  if (!TextOf(from.bind_host).empty()) options.bind_host = from.bind_host;
  if (from.lanes != 0) options.lanes = from.lanes;
  if (from.deadline_seconds != 0) {
    if (!(from.deadline_seconds > 0 && from.deadline_seconds <= kLongestDeadline)) {
      throw ConfigError("deadline_seconds is " + std::to_string(from.deadline_seconds) +
                        "; it must be between 0 and " + std::to_string(kLongestDeadline));
    }
    options.deadline = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(from.deadline_seconds));
  }
  options.key_file = TextOf(from.key_file);
  if (from.networks < 0 || (from.networks > 0 && from.allow == nullptr)) {
    throw ConfigError("allow has " + std::to_string(from.networks) + " networks" +
                      (from.allow == nullptr ? " at a null pointer" : ""));
  }
  for (int i = 0; i < from.networks; ++i) options.allow.push_back(TextOf(from.allow[i]));
  options.interrupted = InterruptedBy(from.interrupted, from.context);
  return options;
}

CollectiveOptions ToOptions(const poseidon_collective_options* from) {
  CollectiveOptions options;
  if (from == nullptr) return options;
  if (from->scheme < 0 || from->scheme > static_cast<int>(CollectiveScheme::kHalvingDoubling)) {
    throw ConfigError("there is no collective scheme " + std::to_string(from->scheme));
  }
  if (from->codec < 0 || from->codec > static_cast<int>(CollectiveCodec::kBf16)) {
    throw ConfigError("there is no collective codec " + std::to_string(from->codec));
  }
  options.scheme = static_cast<CollectiveScheme>(from->scheme);
  options.codec = static_cast<CollectiveCodec>(from->codec);
  options.chunk_bytes = from->chunk_bytes;
  return options;
}

std::span<float> Floats(float* floats, int64_t count) {
  if (count < 0 || (count > 0 && floats == nullptr)) {
    throw ConfigError(std::to_string(count) + " floats" +
                      (floats == nullptr ? " at a null pointer" : ""));
  }
  return {floats, static_cast<size_t>(count)};
}

}  // namespace
}  // namespace poseidon

using poseidon::CCall;
using poseidon::CCallWith;
using poseidon::CDestroy;
using poseidon::Communicator;

int poseidon_communicator_create(const poseidon_communicator_options* options,
                                 poseidon_communicator** communicator) {
  return CCall([&] {
    if (options == nullptr || communicator == nullptr) {
      throw poseidon::Error(poseidon::ExitCode::kFailure, "the options or the result is null");
    }
    *communicator = nullptr;
    *communicator = new poseidon_communicator(poseidon::ToOptions(*options));
  });
}

void poseidon_communicator_destroy(poseidon_communicator* communicator) { CDestroy(communicator); }

int poseidon_communicator_all_reduce(poseidon_communicator* communicator, float* floats,
                                     int64_t count, const poseidon_collective_options* options) {
  return CCallWith(communicator, [&](Communicator& object) {
    object.AllReduce(poseidon::Floats(floats, count), poseidon::ToOptions(options));
  });
}

int poseidon_communicator_all_gather(poseidon_communicator* communicator, float* floats,
                                     const int64_t* counts,
                                     const poseidon_collective_options* options) {
  return CCallWith(communicator, [&](Communicator& object) {
    if (counts == nullptr) throw poseidon::ConfigError("the counts are a null pointer");
    const std::vector<int64_t> blocks(counts, counts + object.workers());
    int64_t all = 0;
    for (const int64_t count : blocks) all += count;
    object.AllGather(poseidon::Floats(floats, all), blocks, poseidon::ToOptions(options));
  });
}

int poseidon_communicator_barrier(poseidon_communicator* communicator) {
  return CCallWith(communicator, [](Communicator& object) { object.Barrier(); });
}
