// Addresses: which lane of which node an envelope goes to.
#pragma once

#include <compare>
#include <cstddef>
#include <functional>
#include <string>

namespace poseidon {

// kThisNode stands for the node itself, whatever its role and rank: an envelope to it stays within
// the process and needs no route.
enum class Role : int { kThisNode = 0, kScheduler = 1, kServer = 2, kWorker = 3 };

// "scheduler", "server", "worker" or "this node".
const char* RoleName(Role role);

// A node of the job: one daemon process. Ranks count from 0 within a role and never change; -1 is a
// node that the scheduler has not admitted yet. The scheduler's rank is 0.
struct NodeId {
  Role role = Role::kScheduler;
  int rank = -1;
  auto operator<=>(const NodeId&) const = default;
  // "worker 3"; the scheduler is just "the scheduler".
  std::string ToString() const;
};

// Lanes: one socket, one thread and one actor each, at the same index on every node. Data lanes
// count up from kFirstDataLane. The application lane has no socket: it is where the program that
// runs the node (a daemon's main thread, a training loop) hears from its actors.
constexpr int kApplicationLane = -1;
constexpr int kControlLane = 0;
constexpr int kHeartbeatLane = 1;
constexpr int kFirstDataLane = 2;

struct Address {
  NodeId node;
  int lane = kControlLane;
  auto operator<=>(const Address&) const = default;
  std::string ToString() const;
};

// A lane of the node itself.
inline Address Here(int lane) { return {{Role::kThisNode, 0}, lane}; }

struct AddressHash {
  // Unsigned, since any rank may come from the network.
  size_t operator()(const Address& address) const {
    return static_cast<size_t>(address.node.role) * 1000003U +
           static_cast<size_t>(address.node.rank) * 257U + static_cast<size_t>(address.lane);
  }
};

}  // namespace poseidon
