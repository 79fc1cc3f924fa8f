#include "client/staging/pack_staging.h"

#include <glog/logging.h>

#include <algorithm>

namespace poseidon {

PackStaging::PackStaging(LayerExchange& exchange, const std::vector<DeviceReplica>& replicas)
    : exchange_(exchange), replicas_(replicas) {
  size_t largest = 0;
  for (size_t l = 0; l < replicas[0].layers.size(); ++l) {
    largest = std::max(largest, exchange.packed_gradient(static_cast<int>(l)).bytes.size());
  }
  if (largest == 0) return;
  for (const DeviceReplica& replica : replicas_) {
    CHECK(replica.packer != nullptr) << "nobody packs gradients";
    packed_.push_back(replica.device->Allocate(largest));
  }
}

void PackStaging::Send(int layer, size_t replica, std::span<const std::span<float>> blobs) {
  const PackedGradient host = exchange_.packed_gradient(layer);
  Device& device = *replicas_[replica].device;
  const DeviceStream stream = device.copy_stream(CopyDirection::kToHost);
  const auto bytes = [&](size_t floats) {
    return EncodedBytes(host.codec, static_cast<int64_t>(floats));
  };
  size_t before = 0;  // floats of the layer's blobs before this one
  for (const std::span<float> blob : blobs) {
    const LocalShare share = ShareOf(blob.size(), replicas_.size(), replica);
    const std::span<std::byte> to = host.bytes.subspan(bytes(before + share.begin));
    before += blob.size();
    if (share.size == 0) continue;
    const std::span<std::byte> packed(packed_[replica].get(), bytes(share.size));
    const Packing packing{blob.subspan(share.begin, share.size), {}, packed};
    replicas_[replica].packer->Pack(host.codec, {&packing, 1}, stream);
    device.Copy(stream, to.data(), packed.data(), packed.size());
  }
  CHECK_EQ(bytes(before), host.bytes.size());
}

}  // namespace poseidon
