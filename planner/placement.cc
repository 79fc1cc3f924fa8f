#include "planner/placement.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

#include "proto/bucket.h"

namespace poseidon {
namespace {

// Loads of a range of bins; Take gives an item to the least loaded.
class LeastLoaded {
 public:
  explicit LeastLoaded(int bins) {
    for (int bin = 0; bin < bins; ++bin) bins_.push({0, bin});
  }
  explicit LeastLoaded(const std::vector<int>& bins) {
    for (const int bin : bins) bins_.push({0, bin});
  }
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

// How much of the pieces goes to a server beside a worker, how much to a spare one, and how many of
// its lanes the former uses.
struct SpareSplit {
  int64_t own_share = 1;
  int64_t spare_share = 0;
  int own_lanes = 1;
};

// n, k and w as in the header.
SpareSplit SplitFor(int64_t n, int64_t k, int lanes) {
  // One worker alone has nothing to exchange with the server beside it.
  if (k == 0 || n == 1) return {1, 0, lanes};
  if (k >= n) return {0, 1, lanes};
  const int64_t own_lanes = lanes * (n - k) / (2 * (n - 1));
  if (own_lanes > 0) return {n - k, 2 * (n - 1), static_cast<int>(own_lanes)};
  const int64_t w = lanes;
  const bool both = k * (2 * (n - 1) + k * w) <= n * (n + k * w);
  return both ? SpareSplit{1, w, 1} : SpareSplit{0, 1, lanes};
}

// By server beside a worker, what it gets of what one gets whose link is as most are: x_i over x.
std::vector<double> SharesByLinks(const InformationBook& book, int servers) {
  const auto workers = static_cast<double>(book.Query(Property::kWorkers));
  std::vector<double> shares(servers, 1);
  if (workers <= 2) return shares;
  std::vector<double> links;
  for (int server = 0; server < servers; ++server) links.push_back(book.LinkShareOf(server));
  if (std::all_of(links.begin(), links.end(), [](double link) { return link == 1; })) return shares;
  // In units of M: the shares of all that get any are 1 together. Whoever gets none has the slowest
  // links, so leaving them out one after another ends at the right T.
  std::vector<double> sorted = links;
  std::sort(sorted.begin(), sorted.end());
  double link_sum = std::accumulate(sorted.begin(), sorted.end(), 0.0);
  size_t first = 0;
  double time = 0;
  for (;; ++first) {
    const auto number = static_cast<double>(sorted.size() - first);
    time = (workers - 2 + number) / link_sum;
    if (first + 1 == sorted.size() || time * sorted[first] > 1) break;
    link_sum -= sorted[first];
  }
  const auto share_of = [&](double link) { return std::max(time * link - 1, 0.0); };
  const double usual = share_of(1) > 0 ? share_of(1) : share_of(sorted.back());
  for (int server = 0; server < servers; ++server) shares[server] = share_of(links[server]) / usual;
  return shares;
}

// Servers that get the same share, by load over it.
struct ServerGroup {
  double share = 1;
  LeastLoaded servers;
};

// Servers by load over share; lanes of a server by load. Of a million servers only those are looked
// at that so many items may come to.
class ServerBins {
 public:
  struct Place {
    int server;
    int lane;
  };

  ServerBins(const InformationBook& book, int lanes, size_t items)
      : lane_count_(lanes),
        spare_count_(static_cast<int>(book.Query(Property::kSpareServers))),
        own_count_(static_cast<int>(book.Query(Property::kServers)) - spare_count_),
        split_(SplitFor(book.Query(Property::kWorkers), spare_count_, lanes)) {
    AddGroups(SharesByLinks(book, own_count_), items);
  }

  Place Take(int64_t size) {
    // Loads with the item, so that a small share does not get a large one only because it is empty.
    const auto load = [size](const ServerGroup& group) {
      return static_cast<double>(group.servers.least() + size) / group.share;
    };
    const auto group = std::min_element(
        groups_.begin(), groups_.end(),
        [&](const ServerGroup& a, const ServerGroup& b) { return load(a) < load(b); });
    const int server = group->servers.Take(size);
    const bool is_spare = server >= own_count_;
    LeastLoaded& lanes =
        lanes_.try_emplace(server, is_spare ? lane_count_ : split_.own_lanes).first->second;
    // Servers that use few lanes use different ones, so that workers use all of theirs.
    const int first = is_spare ? 0 : server * split_.own_lanes;
    return {server, (first + lanes.Take(size)) % lane_count_};
  }

 private:
  // Whoever has a share of 0 gets nothing, nor do more servers of one share than there are items.
  void AddGroups(const std::vector<double>& by_links, size_t items) {
    const auto own_share = static_cast<double>(split_.own_share);
    std::map<double, std::vector<int>, std::greater<>> servers;
    for (int server = 0; server < own_count_; ++server) {
      const double share = own_share * by_links[server];
      if (share > 0 && servers[share].size() < items) servers[share].push_back(server);
    }
    for (const auto& [share, members] : servers) groups_.push_back({share, LeastLoaded(members)});
    if (spare_count_ == 0 || split_.spare_share == 0) return;
    std::vector<int> spare(std::min<size_t>(spare_count_, items));
    std::iota(spare.begin(), spare.end(), own_count_);
    groups_.push_back({static_cast<double>(split_.spare_share), LeastLoaded(spare)});
  }

  int lane_count_;
  int spare_count_;
  int own_count_;
  SpareSplit split_;
  std::vector<ServerGroup> groups_;
  std::unordered_map<int, LeastLoaded> lanes_;  // by server that has something
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
  if (items.empty()) return;
  ServerBins bins(book, plan.lanes(), items.size());
  for (const Item& item : LargestFirst(std::move(items))) {
    const auto [server, lane] = bins.Take(item.size);
    Put(item, server, lane);
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
  const int64_t pieces = PiecesOf(floats, piece);
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
