#include "client/staging/feedback_staging.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

namespace poseidon {
namespace {

// Of what is packed together, or gathered before, unless one pair has more: 64 pairs of 2 MiB in
// INT8. More would not keep a GPU busier, and its memory is the model's.
constexpr size_t kMostBytes = size_t{32} << 20U;

// Where a pair begins in the room: as kernels read and write fours.
constexpr size_t kAlignment = 16;

size_t Aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Room for one, for all, or for as many as may be packed together.
size_t RoomFor(size_t largest, size_t all) { return std::min(all, std::max(largest, kMostBytes)); }

std::span<float> Floats(const DeviceMemory& memory, size_t begin, size_t count) {
  return {reinterpret_cast<float*>(memory.get()) + begin, count};
}

}  // namespace

FeedbackStaging::FeedbackStaging(const std::vector<PackedChunk>& chunks, PackingReplica replica,
                                 const std::vector<std::vector<std::span<float>>>& gradients)
    : replica_(replica), chunks_of_layer_(gradients.size()) {
  if (chunks.empty()) return;
  for (const PackedChunk& chunk : chunks) chunks_.emplace_back().host = chunk;
  CHECK(replica_.packer != nullptr) << "nobody packs gradients";
  for (size_t c = 0; c < chunks_.size(); ++c) FindPieces(c, gradients);
  Allocate();
}

void FeedbackStaging::FindPieces(size_t c,
                                 const std::vector<std::vector<std::span<float>>>& gradients) {
  Chunk& chunk = chunks_[c];
  size_t before = static_cast<size_t>(chunk.host.offset);  // floats that are not the chunk's
  size_t left = chunk.host.residual.size();
  for (auto layer = static_cast<size_t>(chunk.host.layer); left > 0; ++layer) {
    CHECK_LT(layer, gradients.size());
    const size_t found = chunk.pieces.size();
    for (const std::span<float> blob : gradients[layer]) {
      const size_t begin = std::min(before, blob.size());
      const size_t size = std::min(left, blob.size() - begin);
      before -= begin;
      left -= size;
      if (size > 0) chunk.pieces.push_back(blob.subspan(begin, size));
    }
    if (chunk.pieces.size() == found) continue;
    chunks_of_layer_[layer].push_back(c);
    ++chunk.layers;
  }
}

void FeedbackStaging::Allocate() {
  size_t floats = 0;
  Size largest, all;
  for (const Chunk& chunk : chunks_) {
    const Size size = SizeOf(chunk);
    largest = {std::max(largest.packed, size.packed), std::max(largest.gathered, size.gathered)};
    all = {all.packed + size.packed, all.gathered + size.gathered};
    floats += chunk.host.residual.size();
    replica_.packer->Reserve(chunk.host.codec, std::min(chunks_.size(), kMostPackings),
                             chunk.host.residual.size());
  }
  capacity_ = {RoomFor(largest.packed, all.packed), RoomFor(largest.gathered, all.gathered)};
  Device& device = *replica_.device;
  residuals_ = device.Allocate(floats * sizeof(float));
  for (Room& room : rooms_) {
    room = {.packed = device.Allocate(capacity_.packed),
            .is_packed = device.MakeEvent(),
            .is_copied = device.MakeEvent()};
  }
  if (capacity_.gathered > 0) gathered_ = device.Allocate(capacity_.gathered);
  size_t begin = 0;
  for (Chunk& chunk : chunks_) {
    const std::span<float> host = chunk.host.residual;
    chunk.residual = Floats(residuals_, begin, host.size());
    begin += host.size();
    device.Copy(device.packing_stream(), chunk.residual.data(), host.data(), host.size_bytes());
  }
}

FeedbackStaging::Size FeedbackStaging::SizeOf(const Chunk& chunk) {
  return {.packed = Aligned(chunk.host.bytes.size()),
          .gathered = chunk.pieces.size() == 1 ? 0 : chunk.host.residual.size_bytes()};
}

void FeedbackStaging::Send(std::span<const int> layers, const DeviceEvent& there) {
  complete_.clear();
  for (const int layer : layers) {
    for (const size_t c : chunks_of_layer_[layer]) {
      Chunk& chunk = chunks_[c];
      if (++chunk.there < chunk.layers) continue;
      chunk.there = 0;
      complete_.push_back(c);
    }
  }
  replica_.device->Wait(replica_.device->packing_stream(), there);
  size_t first = 0;
  Size together;
  for (size_t i = 0; i < complete_.size(); ++i) {
    const Size size = SizeOf(chunks_[complete_[i]]);
    if (i - first == kMostPackings || together.packed + size.packed > capacity_.packed ||
        together.gathered + size.gathered > capacity_.gathered) {
      Pack(std::span(complete_).subspan(first, i - first));
      first = i;
      together = {};
    }
    together = {together.packed + size.packed, together.gathered + size.gathered};
  }
  if (first < complete_.size()) Pack(std::span(complete_).subspan(first));
}

void FeedbackStaging::Pack(std::span<const size_t> together) {
  Device& device = *replica_.device;
  Room& room = rooms_[std::exchange(next_room_, 1 - next_room_)];
  device.Wait(device.packing_stream(), *room.is_copied);
  packings_.clear();
  size_t gathered = 0, packed = 0;
  for (const size_t c : together) {
    const Chunk& chunk = chunks_[c];
    const bool is_whole = chunk.pieces.size() == 1;
    packings_.push_back({.floats = is_whole ? chunk.pieces[0] : Gather(chunk, gathered),
                         .residual = chunk.residual,
                         .packed = {room.packed.get() + packed, chunk.host.bytes.size()}});
    if (!is_whole) gathered += chunk.residual.size();
    packed += Aligned(chunk.host.bytes.size());
  }
  // They are of one bucket.
  replica_.packer->Pack(chunks_[together[0]].host.codec, packings_, device.packing_stream());
  device.Record(*room.is_packed, device.packing_stream());
  device.Wait(stream(), *room.is_packed);
  for (size_t i = 0; i < together.size(); ++i) {
    Chunk& chunk = chunks_[together[i]];
    const std::span<std::byte> from = packings_[i].packed;
    device.Copy(stream(), chunk.host.bytes.data(), from.data(), from.size());
    chunk.host_is_behind = true;
  }
  device.Record(*room.is_copied, stream());
}

std::span<const float> FeedbackStaging::Gather(const Chunk& chunk, size_t gathered) {
  const std::span<float> floats = Floats(gathered_, gathered, chunk.residual.size());
  for (const std::span<const float> piece : chunk.pieces) {
    replica_.device->Copy(replica_.device->packing_stream(),
                          Floats(gathered_, gathered, piece.size()).data(), piece.data(),
                          piece.size_bytes());
    gathered += piece.size();
  }
  return floats;
}

bool FeedbackStaging::CopyToHost(int layer) {
  bool copies = false;
  for (const size_t c : chunks_of_layer_[layer]) {
    Chunk& chunk = chunks_[c];
    if (!std::exchange(chunk.host_is_behind, false)) continue;
    const std::span<float> host = chunk.host.residual;
    replica_.device->Copy(stream(), host.data(), chunk.residual.data(), host.size_bytes());
    copies = true;
  }
  return copies;
}

}  // namespace poseidon
