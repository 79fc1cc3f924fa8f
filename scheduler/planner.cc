#include "scheduler/planner.h"

#include <algorithm>
#include <numeric>
#include <queue>

#include "scheduler/cost_model.h"

namespace poseidon {
namespace {

// Loads of a fixed number of bins; Take gives an item to the least loaded.
class LeastLoaded {
 public:
  explicit LeastLoaded(int bins) {
    for (int bin = 0; bin < bins; ++bin) bins_.push({0, bin});
  }
  int Take(int64_t size) {
    auto [load, bin] = bins_.top();
    bins_.pop();
    bins_.push({load + size, bin});
    return bin;
  }

 private:
  using Bin = std::pair<int64_t, int>;
  std::priority_queue<Bin, std::vector<Bin>, std::greater<>> bins_;
};

// Pieces of at most `piece` floats, as equal as can be: a short last piece would cost a message all
// the same.
void Cut(int64_t floats, int64_t piece, LayerPlan& layer) {
  const int64_t pieces = (floats + piece - 1) / piece;
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t begin = floats * i / pieces;
    const int64_t end = floats * (i + 1) / pieces;
    Chunk* chunk = layer.add_chunks();
    chunk->set_offset(begin);
    chunk->set_size(end - begin);
  }
}

void PlaceChunks(Plan& plan) {
  std::vector<Chunk*> chunks;
  for (LayerPlan& layer : *plan.mutable_layers()) {
    if (layer.scheme() != PS) continue;
    for (Chunk& chunk : *layer.mutable_chunks()) chunks.push_back(&chunk);
  }
  std::stable_sort(chunks.begin(), chunks.end(),
                   [](const Chunk* a, const Chunk* b) { return a->size() > b->size(); });
  LeastLoaded servers(plan.servers());
  std::vector<LeastLoaded> lanes(plan.servers(), LeastLoaded(plan.lanes()));
  for (Chunk* chunk : chunks) {
    chunk->set_server(servers.Take(chunk->size()));
    chunk->set_lane(lanes[chunk->server()].Take(chunk->size()));
  }
}

void PlaceFactors(const InformationBook& book, Plan& plan) {
  LeastLoaded lanes(plan.lanes());
  for (int i = 0; i < plan.layers_size(); ++i) {
    LayerPlan& layer = *plan.mutable_layers(i);
    if (layer.scheme() != SFB) continue;
    const LayerFacts facts = book.Query(i);
    layer.set_lane(lanes.Take(facts.rows * (facts.outputs + facts.inputs)));
    for (Chunk& chunk : *layer.mutable_chunks()) {
      chunk.set_server(-1);
      chunk.set_lane(layer.lane());
    }
  }
}

}  // namespace

Plan MakePlan(const InformationBook& book, const Communication& communication) {
  Plan plan;
  plan.set_workers(static_cast<int>(book.Query(Property::kWorkers)));
  plan.set_servers(static_cast<int>(book.Query(Property::kServers)));
  plan.set_lanes(communication.lanes());
  plan.set_deterministic(communication.deterministic());
  const int64_t piece = communication.kv_pair_bytes() / static_cast<int64_t>(sizeof(float));
  for (int i = 0; i < book.Query(Property::kLayers); ++i) {
    const LayerFacts facts = book.Query(i);
    LayerPlan* layer = plan.add_layers();
    layer->set_name(facts.name);
    layer->set_scheme(ChooseScheme(book, i, communication.policy()));
    layer->set_floats_ps(FloatsParameterServer(facts.parameters, plan.workers(), plan.servers()));
    if (facts.factorable) {
      layer->set_floats_sfb(
          FloatsFactorBroadcast(facts.outputs, facts.inputs, facts.rows, plan.workers()));
    }
    Cut(facts.parameters, piece, *layer);
  }
  PlaceChunks(plan);
  PlaceFactors(book, plan);
  return plan;
}

std::vector<int64_t> ServerLoads(const Plan& plan) {
  std::vector<int64_t> loads(plan.servers());
  for (const LayerPlan& layer : plan.layers()) {
    if (layer.scheme() != PS) continue;
    for (const Chunk& chunk : layer.chunks()) loads[chunk.server()] += chunk.size();
  }
  return loads;
}

double LoadImbalance(const Plan& plan) {
  const std::vector<int64_t> loads = ServerLoads(plan);
  const int64_t total = std::accumulate(loads.begin(), loads.end(), int64_t{0});
  if (total == 0) return 1;
  return static_cast<double>(*std::max_element(loads.begin(), loads.end())) * plan.servers() /
         static_cast<double>(total);
}

}  // namespace poseidon
