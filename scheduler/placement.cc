#include "scheduler/placement.h"

#include <algorithm>
#include <numeric>
#include <queue>

#include "proto/bucket.h"

namespace poseidon {
namespace {

// Loads of a range of bins; Take gives an item to the least loaded.
class LeastLoaded {
 public:
  explicit LeastLoaded(int bins, int first = 0) {
    for (int bin = first; bin < first + bins; ++bin) bins_.push({0, bin});
  }
  bool empty() const { return bins_.empty(); }
  int64_t least() const { return bins_.top().first; }
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

// Servers, spare ones or not, by load over share.
class ServerLoadsByShare {
 public:
  explicit ServerLoadsByShare(const InformationBook& book)
      : spare_count_(static_cast<int>(book.Query(Property::kSpareServers))),
        own_(static_cast<int>(book.Query(Property::kServers)) - spare_count_),
        spare_(spare_count_, static_cast<int>(book.Query(Property::kServers)) - spare_count_) {
    if (spare_count_ == 0) return;
    const int64_t workers = book.Query(Property::kWorkers);
    // One worker alone has nothing to exchange with the server beside it.
    own_share_ = workers == 1 ? 1 : std::max<int64_t>(workers - spare_count_, 0);
    spare_share_ = 2 * (workers - 1);
  }

  int Take(int64_t size) {
    // Loads with the item, so that a small share does not get a large one only because it is empty.
    const bool spare = !spare_.empty() &&
                       (spare_.least() + size) * own_share_ < (own_.least() + size) * spare_share_;
    return (spare ? spare_ : own_).Take(size);
  }

 private:
  int spare_count_;
  LeastLoaded own_;
  LeastLoaded spare_;
  int64_t own_share_ = 1;
  int64_t spare_share_ = 0;
};

// What goes to one lane as a whole: a chunk, or all chunks of a bucket.
struct Item {
  int64_t size = 0;
  BucketPlan* bucket = nullptr;  // whose factors the lane carries; null for a chunk alone
  std::vector<Chunk*> chunks;
};

std::vector<Item> LargestFirst(std::vector<Item> items) {
  std::stable_sort(items.begin(), items.end(),
                   [](const Item& a, const Item& b) { return a.size > b.size; });
  return items;
}

Item Whole(BucketPlan& bucket, int64_t size) {
  Item item{size, &bucket, {}};
  for (Chunk& chunk : *bucket.mutable_chunks()) item.chunks.push_back(&chunk);
  return item;
}

void AddChunks(BucketPlan& bucket, std::vector<Item>& items) {
  for (Chunk& chunk : *bucket.mutable_chunks()) items.push_back({chunk.size(), nullptr, {&chunk}});
}

void Put(const Item& item, int server, int lane) {
  if (item.bucket != nullptr) item.bucket->set_lane(lane);
  for (Chunk* chunk : item.chunks) {
    chunk->set_server(server);
    chunk->set_lane(lane);
  }
}

void PlaceOnServers(const InformationBook& book, Plan& plan) {
  std::vector<Item> items;
  for (BucketPlan& bucket : *plan.mutable_buckets()) {
    if (bucket.scheme() == PS) AddChunks(bucket, items);
    if (bucket.scheme() == ADAM) items.push_back(Whole(bucket, FloatCount(bucket)));
  }
  ServerLoadsByShare servers(book);
  std::vector<LeastLoaded> lanes(plan.servers(), LeastLoaded(plan.lanes()));
  for (const Item& item : LargestFirst(std::move(items))) {
    const int server = servers.Take(item.size);
    Put(item, server, lanes[server].Take(item.size));
  }
}

void PlaceOnLanes(const InformationBook& book, Plan& plan) {
  std::vector<Item> items;
  for (BucketPlan& bucket : *plan.mutable_buckets()) {
    if (bucket.scheme() == SFB) {
      const LayerFacts facts = book.Query(bucket.first_layer());
      items.push_back(Whole(bucket, facts.rows * (facts.outputs + facts.inputs)));
    }
    if (IsAllReduce(bucket.scheme())) AddChunks(bucket, items);
  }
  LeastLoaded lanes(plan.lanes());
  for (const Item& item : LargestFirst(std::move(items))) Put(item, -1, lanes.Take(item.size));
}

}  // namespace

void CutIntoChunks(int64_t floats, int64_t piece, BucketPlan& bucket) {
  const int64_t pieces = (floats + piece - 1) / piece;
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t begin = floats * i / pieces;
    const int64_t end = floats * (i + 1) / pieces;
    Chunk* chunk = bucket.add_chunks();
    chunk->set_offset(begin);
    chunk->set_size(end - begin);
  }
}

void Place(const InformationBook& book, Plan& plan) {
  PlaceOnServers(book, plan);
  PlaceOnLanes(book, plan);
}

std::vector<int64_t> ServerLoads(const Plan& plan) {
  std::vector<int64_t> loads(plan.servers());
  for (const BucketPlan& bucket : plan.buckets()) {
    if (!UsesServers(bucket.scheme())) continue;
    for (const Chunk& chunk : bucket.chunks()) loads[chunk.server()] += chunk.size();
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
