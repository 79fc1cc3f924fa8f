#include "client/staging/share_copy.h"

#include <glog/logging.h>

#include "device/local_reduction.h"

namespace poseidon {
namespace {

std::span<float> Joined(std::span<float> first, std::span<float> second) {
  return {first.data(), first.size() + second.size()};
}

}  // namespace

void AddRun(const CopyRun& run, std::vector<CopyRun>& runs) {
  CHECK_EQ(run.on_device.size(), run.on_host.size());
  if (run.on_host.empty()) return;
  if (!runs.empty() &&
      runs.back().on_device.data() + runs.back().on_device.size() == run.on_device.data() &&
      runs.back().on_host.data() + runs.back().on_host.size() == run.on_host.data()) {
    runs.back() = {Joined(runs.back().on_device, run.on_device),
                   Joined(runs.back().on_host, run.on_host)};
    return;
  }
  runs.push_back(run);
}

void AddShare(std::span<const std::span<float>> blobs, std::span<float> host, size_t replica,
              size_t replicas, std::vector<CopyRun>& runs) {
  for (const std::span<float> blob : blobs) {
    const LocalShare share = ShareOf(blob.size(), replicas, replica);
    CHECK_LE(blob.size(), host.size());
    AddRun({blob.subspan(share.begin, share.size), host.subspan(share.begin, share.size)}, runs);
    host = host.subspan(blob.size());
  }
  CHECK(host.empty());
}

void CopyRuns(Device& device, CopyDirection direction, std::span<const CopyRun> runs) {
  const bool leaves = direction == CopyDirection::kToHost;
  for (const CopyRun& run : runs) {
    device.Copy(device.copy_stream(direction), leaves ? run.on_host.data() : run.on_device.data(),
                leaves ? run.on_device.data() : run.on_host.data(), run.on_host.size_bytes());
  }
}

}  // namespace poseidon
