#include "planner/backups.h"

#include <algorithm>
#include <cstdint>
#include <tuple>

#include "proto/bucket.h"

namespace poseidon {
namespace {

bool ShareHost(const std::vector<std::string>& hosts, int server, int other) {
  return !hosts.empty() && hosts[server] == hosts[other];
}

// Chunks that have one backup: a KV pair, or all of a factor layer.
struct Item {
  int64_t size = 0;
  std::vector<Chunk*> chunks;
};

std::vector<Item> ItemsOf(Plan& plan) {
  std::vector<Item> items;
  for (BucketPlan& bucket : *plan.mutable_buckets()) {
    if (!UsesServers(bucket.scheme()) || bucket.update_at_workers()) continue;
    if (bucket.scheme() == ADAM) items.emplace_back();
    for (Chunk& chunk : *bucket.mutable_chunks()) {
      if (bucket.scheme() == PS) items.emplace_back();
      items.back().size += chunk.size();
      items.back().chunks.push_back(&chunk);
    }
  }
  std::ranges::stable_sort(items, [](const Item& a, const Item& b) { return a.size > b.size; });
  return items;
}

}  // namespace

void PlaceBackups(const std::vector<std::string>& hosts, Plan& plan) {
  if (plan.servers() < 2) return;
  std::vector<int64_t> loads(plan.servers());
  for (const Item& item : ItemsOf(plan)) {
    const int owner = item.chunks.front()->server();
    int best = owner == 0 ? 1 : 0;
    for (int server = 0; server < plan.servers(); ++server) {
      if (server == owner) continue;
      const auto cost = [&](int at) { return std::tuple(ShareHost(hosts, owner, at), loads[at]); };
      if (cost(server) < cost(best)) best = server;
    }
    loads[best] += item.size;
    for (Chunk* chunk : item.chunks) chunk->set_backup(best);
  }
}

bool BackupsShareHosts(const std::vector<std::string>& hosts, const Plan& plan) {
  for (const BucketPlan& bucket : plan.buckets()) {
    for (const Chunk& chunk : bucket.chunks()) {
      if (chunk.has_backup() && ShareHost(hosts, chunk.server(), chunk.backup())) return true;
    }
  }
  return false;
}

}  // namespace poseidon
