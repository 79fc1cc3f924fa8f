#include "planner/backups.h"

#include <algorithm>
#include <cstdint>

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

// Who may back the server up, beginning with the one after it.
std::vector<int> OthersOf(int server, int servers, const std::vector<std::string>& hosts) {
  std::vector<int> all;
  std::vector<int> elsewhere;
  for (int step = 1; step < servers; ++step) {
    const int other = (server + step) % servers;
    all.push_back(other);
    if (!ShareHost(hosts, server, other)) elsewhere.push_back(other);
  }
  return elsewhere.empty() ? all : elsewhere;
}

}  // namespace

void PlaceBackups(const std::vector<std::string>& hosts, Plan& plan) {
  if (plan.servers() < 2) return;
  std::vector<std::vector<int>> others;
  for (int server = 0; server < plan.servers(); ++server) {
    others.push_back(OthersOf(server, plan.servers(), hosts));
  }
  std::vector<size_t> backed_up(plan.servers());  // items of each owner
  for (const Item& item : ItemsOf(plan)) {
    const int owner = item.chunks.front()->server();
    const int backup = others[owner][backed_up[owner]++ % others[owner].size()];
    for (Chunk* chunk : item.chunks) chunk->set_backup(backup);
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
