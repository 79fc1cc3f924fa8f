#include "planner/planner.h"

#include <glog/logging.h>

#include <algorithm>

#include "core/arithmetic/update_rule.h"
#include "core/error.h"
#include "core/message_limit.h"
#include "planner/cost/cost_model.h"
#include "planner/placement.h"
#include "proto/bucket.h"
#include "proto/compatibility.h"
#include "proto/model_size.h"

namespace poseidon {
namespace {

int64_t Floats(const InformationBook& book, const BucketChoice& choice) {
  int64_t floats = 0;
  for (int i = 0; i < choice.layer_count; ++i) {
    floats += book.Query(choice.first_layer + i).parameters;
  }
  return floats;
}

std::string Name(const InformationBook& book, const BucketChoice& choice) {
  std::string first = book.Query(choice.first_layer).name;
  if (choice.layer_count == 1) return first;
  return first + ".." + book.Query(choice.first_layer + choice.layer_count - 1).name;
}

// What Adam's servers send back is the new values.
Scheme UsableScheme(const InformationBook& book, Scheme scheme) {
  return scheme == ADAM && book.updates_at_workers() ? PS : scheme;
}

bool UpdateAtWorkers(const InformationBook& book, const Communication& communication,
                     const BucketChoice& choice) {
  if (!UsesServers(choice.scheme) || book.updates_at_workers()) return true;
  if (choice.scheme == ADAM) return false;
  if (communication.update_at() == Communication::AUTOMATIC) return choice.codec != FP32;
  return communication.update_at() == Communication::WORKERS;
}

// A chunk's optimizer state is one message, too, where a plan does not start at iteration 0.
int64_t MostChunkFloats(const UpdateRuleSpec& spec) {
  constexpr int64_t kMostFloats = kMostBodyBytes / kFloatBytes;
  if (spec.type().empty()) return kMostFloats;
  UpdateRule rule;
  rule.type = spec.type();
  rule.deferred = spec.deferred();
  return kMostFloats / std::max(1, OptimizerStatePerParameter(rule));
}

void AddBucket(const InformationBook& book, const Communication& communication,
               const BucketChoice& given, Plan& plan) {
  BucketChoice choice = given;
  choice.scheme = UsableScheme(book, given.scheme);
  const int64_t floats = Floats(book, choice);
  BucketPlan& bucket = *plan.add_buckets();
  bucket.set_name(Name(book, choice));
  bucket.set_first_layer(choice.first_layer);
  bucket.set_layer_count(choice.layer_count);
  bucket.set_scheme(choice.scheme);
  bucket.set_codec(choice.codec);
  bucket.set_update_at_workers(UpdateAtWorkers(book, communication, choice));
  bucket.set_factor_ring(choice.scheme == SFB && choice.factor_ring);
  bucket.set_floats_ps(
      FloatsParameterServer(floats, plan.workers(), plan.servers(), book.colocated()));
  const LayerFacts facts = book.Query(choice.first_layer);
  if (facts.factorable && choice.layer_count == 1) {
    bucket.set_floats_sfb(
        FloatsFactorBroadcast(facts.outputs, facts.inputs, facts.rows, plan.workers()));
  }
  CutIntoChunks(floats, choice.chunk_floats, bucket);
}

void SetGrid(const Communication& communication, Plan& plan) {
  std::vector<int> sizes(communication.grid().begin(), communication.grid().end());
  if (sizes.empty()) sizes = SquareGrid(plan.workers());
  for (const int size : sizes) {
    GridDimension& dimension = *plan.add_grid();
    dimension.set_size(size);
    dimension.set_algorithm(RING);
  }
}

bool Uses(const std::vector<BucketChoice>& buckets, Scheme scheme) {
  for (const BucketChoice& bucket : buckets) {
    if (bucket.scheme == scheme) return true;
  }
  return false;
}

}  // namespace

void CheckKvPairs(const InformationBook& book, const Communication& communication) {
  const int64_t layers = book.Query(Property::kLayers);
  const int64_t piece = communication.kv_pair_bytes() / kFloatBytes;
  int64_t floats = 0;
  int64_t pairs = 0;
  for (int layer = 0; layer < layers; ++layer) {
    const int64_t own = book.Query(layer).parameters;
    floats += own;
    pairs += PiecesOf(own, piece);
  }
  if (pairs <= kMostKvPairs) return;
  // The last piece of each layer may be a short one.
  const int64_t enough = PiecesOf(floats, std::max<int64_t>(kMostKvPairs - layers, 1));
  throw ConfigError("communication.kv_pair_bytes is " +
                    std::to_string(communication.kv_pair_bytes()) + ", which cuts the model into " +
                    std::to_string(pairs) + " KV pairs; a plan has at most " +
                    std::to_string(kMostKvPairs) + ", so give it " +
                    std::to_string(enough * kFloatBytes) + " or more");
}

WireCodec UsableCodec(Scheme scheme, WireCodec codec) {
  return WhyNotCodec(scheme, codec).empty() ? codec : FP32;
}

WireCodec CodecOf(const LayerFacts& layer, Scheme scheme, WireCodec codec) {
  return layer.type == kFlagsLayer ? FP32 : UsableCodec(scheme, codec);
}

std::vector<BucketChoice> ChooseBuckets(const InformationBook& book,
                                        const Communication& communication) {
  std::vector<BucketChoice> buckets;
  int64_t bytes = 0;  // of the last bucket
  for (int layer = 0; layer < book.Query(Property::kLayers); ++layer) {
    const Scheme scheme = UsableScheme(book, ChooseScheme(book, layer, communication.policy()));
    const LayerFacts facts = book.Query(layer);
    const int64_t layer_bytes = facts.parameters * kFloatBytes;
    const WireCodec codec = CodecOf(facts, scheme, communication.codec());
    const bool merge = !buckets.empty() && buckets.back().scheme == scheme &&
                       buckets.back().codec == codec && !UsesFactors(scheme) &&
                       bytes < communication.bucket_bytes();
    if (merge) {
      ++buckets.back().layer_count;
      bytes += layer_bytes;
      continue;
    }
    BucketChoice bucket;
    bucket.first_layer = layer;
    bucket.scheme = scheme;
    bucket.codec = codec;
    bucket.chunk_floats = communication.kv_pair_bytes() / kFloatBytes;
    bucket.factor_ring = communication.factor_ring();
    buckets.push_back(bucket);
    bytes = layer_bytes;
  }
  return buckets;
}

Plan MakePlan(const InformationBook& book, const Communication& communication,
              const std::vector<BucketChoice>& buckets) {
  Plan plan;
  plan.set_workers(static_cast<int>(book.Query(Property::kWorkers)));
  plan.set_servers(static_cast<int>(book.Query(Property::kServers)));
  plan.set_lanes(communication.lanes());
  plan.set_deterministic(communication.deterministic());
  plan.set_staleness(communication.staleness());
  plan.set_top_k_share(communication.top_k_share());
  plan.set_fifo(!communication.by_priority());
  plan.set_no_overlap(!communication.overlap());
  plan.set_wait_for_all(communication.wait_for_all() || !communication.overlap());
  if (communication.local_steps() > 1) {
    plan.set_local_steps(communication.local_steps());
    plan.set_fragments(communication.fragments());
    plan.set_overlap_steps(communication.overlap_steps());
  }
  if (Uses(buckets, TORUS)) SetGrid(communication, plan);
  const int64_t most = MostChunkFloats(book.model().update_rule());
  for (BucketChoice bucket : buckets) {
    bucket.chunk_floats = std::min(bucket.chunk_floats, most);
    AddBucket(book, communication, bucket, plan);
  }
  const BucketPlan& last = plan.buckets(plan.buckets_size() - 1);
  CHECK_EQ(last.first_layer() + last.layer_count(), book.Query(Property::kLayers));
  Place(book, plan);
  return plan;
}

Plan MakePlan(const InformationBook& book, const Communication& communication) {
  return MakePlan(book, communication, ChooseBuckets(book, communication));
}

}  // namespace poseidon
