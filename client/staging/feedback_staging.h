// FeedbackStaging: the part of DeviceStaging that has to do with gradients which a device packs
// with error feedback (device/gradient_packer.h). KV pairs are packed whole, as servers get them,
// so each as soon as the last layer is there that it has floats of. The device keeps what was not
// sent; the host's residual stands still meanwhile and follows when somebody asks for it.
//
// Where there are several replicas the first does it, with the gradients' sums.
//
// Packing is work in a stream of its own, so that what has been packed is copied meanwhile; what is
// on the host afterwards is work in the stream of copies there. Thread safety and errors are
// DeviceStaging's.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "client/sync/gradient_buffers.h"
#include "device/device.h"
#include "device/gradient_packer.h"
#include "device/packing.h"

namespace poseidon {

struct PackingReplica {
  Device* device = nullptr;
  GradientPacker* packer = nullptr;  // null: the exchange must not want packed gradients
};

class FeedbackStaging {
 public:
  // `gradients`: the blobs of each layer on the device; they must not change between Send and the
  // layer's new values. Makes device memory for the KV pairs `chunks`, and puts the host's
  // residuals there. Throws Error if the device does not have so much.
  FeedbackStaging(const std::vector<PackedChunk>& chunks, PackingReplica replica,
                  const std::vector<std::vector<std::span<float>>>& gradients);

  bool empty() const { return chunks_.empty(); }
  bool Has(int layer) const { return !chunks_of_layer_[layer].empty(); }
  // The layers' gradients are there after the event: KV pairs that are complete by them, packed, to
  // the host.
  void Send(std::span<const int> layers, const DeviceEvent& there);
  // Residuals of KV pairs that have floats of the layer -> the host. False if it has them.
  bool CopyToHost(int layer);

 private:
  struct Chunk {
    PackedChunk host;
    std::span<float> residual;                   // on the device
    std::vector<std::span<const float>> pieces;  // of gradients, in order
    size_t layers = 0;                           // that it has pieces of
    size_t there = 0;                            // of these, in the present iteration
    bool host_is_behind = false;
  };

  // Bytes that a chunk needs in a room, and to be gathered in.
  struct Size {
    size_t packed = 0;
    size_t gathered = 0;
  };
  // Room for what is packed together, and the moments when it has been packed there and copied.
  struct Room {
    DeviceMemory packed;
    std::unique_ptr<DeviceEvent> is_packed;
    std::unique_ptr<DeviceEvent> is_copied;
  };

  static Size SizeOf(const Chunk& chunk);
  DeviceStream stream() const { return replica_.device->copy_stream(CopyDirection::kToHost); }
  // Chunk number `c`'s.
  void FindPieces(size_t c, const std::vector<std::vector<std::span<float>>>& gradients);
  void Allocate();
  // Chunks by their numbers.
  void Pack(std::span<const size_t> together);
  // The chunk's floats one behind the other, behind `gathered` others.
  std::span<const float> Gather(const Chunk& chunk, size_t gathered);

  PackingReplica replica_;
  std::vector<Chunk> chunks_;
  std::vector<std::vector<size_t>> chunks_of_layer_;
  DeviceMemory residuals_;
  // One is packed into while the other is copied.
  std::array<Room, 2> rooms_;
  size_t next_room_ = 0;
  Size capacity_;  // of a room, and of gathered_
  DeviceMemory gathered_;
  std::vector<size_t> complete_;   // Send's
  std::vector<Packing> packings_;  // Pack's
};

}  // namespace poseidon
