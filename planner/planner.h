// The planner: buckets of layers, a scheme for each, and their chunks, by a job's policy or as it
// is told.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/cost/information_book.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

// A chunk takes up to some 30 bytes of the message that is the plan, which has room for eight times
// as many, and 170 bytes in the memory of each node, several times that where plans are compared.
// Whoever has so many exchanges more headers than anybody wants.
inline constexpr int64_t kMostKvPairs = int64_t{1} << 22;

// Throws ConfigError where communication.kv_pair_bytes cuts the model into more than those; it says
// how many bytes are enough.
void CheckKvPairs(const InformationBook& book, const Communication& communication);

// What is free to choose of a bucket.
struct BucketChoice {
  int first_layer = 0;
  int layer_count = 1;
  Scheme scheme = PS;
  WireCodec codec = FP32;
  int64_t chunk_floats = 0;  // the most of a chunk; at least 1
  bool factor_ring = false;  // SFB only
  bool operator==(const BucketChoice&) const = default;
};

// The buckets that the policy makes: every layer's scheme by ChooseScheme, but PS for ADAM where
// the workers update; consecutive layers merged up to communication.bucket_bytes. `policy` is not
// TIME.
std::vector<BucketChoice> ChooseBuckets(const InformationBook& book,
                                        const Communication& communication);

// The plan of these buckets, which are all layers in their order. Everything else is as
// `communication` says.
Plan MakePlan(const InformationBook& book, const Communication& communication,
              const std::vector<BucketChoice>& buckets);

// The plan of what ChooseBuckets makes.
Plan MakePlan(const InformationBook& book, const Communication& communication);

// `codec` if the scheme can use it (proto/compatibility.h), else FP32.
WireCodec UsableCodec(Scheme scheme, WireCodec codec);
// The type of a layer of flags, ones and zeros, whose mean counts workers: which parameters have a
// gradient (python/poseidon_torch/_exchange.py). A codec that leaves something out, or rounds to a
// block's largest, would make others of them.
inline constexpr char kFlagsLayer[] = "Used";
// What a layer's gradient travels in: `codec`, where that can be.
WireCodec CodecOf(const LayerFacts& layer, Scheme scheme, WireCodec codec);

}  // namespace poseidon
