#include "proto/model_size.h"

namespace poseidon {

int64_t FloatCount(const BlobSpec& blob) {
  int64_t count = 1;
  for (const int64_t extent : blob.shape()) count *= extent;
  return count;
}

int64_t FloatCount(const LayerSpec& layer) {
  int64_t count = 0;
  for (const BlobSpec& blob : layer.blobs()) count += FloatCount(blob);
  return count;
}

}  // namespace poseidon
