#include "client/staging/feedback_staging.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

namespace poseidon {
namespace {

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
  size_t all = 0, most_bytes = 0, most_gathered = 0;
  for (const Chunk& chunk : chunks_) {
    const size_t floats = chunk.host.residual.size();
    all += floats;
    most_bytes = std::max(most_bytes, chunk.host.bytes.size());
    if (chunk.pieces.size() > 1) most_gathered = std::max(most_gathered, floats);
    replica_.packer->Reserve(chunk.host.codec, floats);
  }
  Device& device = *replica_.device;
  residuals_ = device.Allocate(all * sizeof(float));
  packed_ = device.Allocate(most_bytes);
  if (most_gathered > 0) gathered_ = device.Allocate(most_gathered * sizeof(float));
  size_t begin = 0;
  for (Chunk& chunk : chunks_) {
    const std::span<float> host = chunk.host.residual;
    chunk.residual = Floats(residuals_, begin, host.size());
    begin += host.size();
    device.Copy(stream(), chunk.residual.data(), host.data(), host.size_bytes());
  }
}

void FeedbackStaging::Send(int layer) {
  for (const size_t c : chunks_of_layer_[layer]) {
    Chunk& chunk = chunks_[c];
    if (++chunk.there < chunk.layers) continue;
    chunk.there = 0;
    Pack(chunk);
  }
}

void FeedbackStaging::Pack(Chunk& chunk) {
  const std::span<const float> floats = chunk.pieces.size() == 1 ? chunk.pieces[0] : Gather(chunk);
  const std::span<std::byte> packed(packed_.get(), chunk.host.bytes.size());
  replica_.packer->Pack(chunk.host.codec, floats, chunk.residual, packed, stream());
  replica_.device->Copy(stream(), chunk.host.bytes.data(), packed.data(), packed.size());
  chunk.host_is_behind = true;
}

std::span<const float> FeedbackStaging::Gather(const Chunk& chunk) {
  size_t gathered = 0;
  for (const std::span<const float> piece : chunk.pieces) {
    replica_.device->Copy(stream(), Floats(gathered_, gathered, piece.size()).data(), piece.data(),
                          piece.size_bytes());
    gathered += piece.size();
  }
  CHECK_EQ(gathered, chunk.host.residual.size());
  return Floats(gathered_, 0, gathered);
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
