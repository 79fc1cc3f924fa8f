#include "transport/address.h"

namespace poseidon {

const char* RoleName(Role role) {
  switch (role) {
    case Role::kThisNode:
      return "this node";
    case Role::kScheduler:
      return "scheduler";
    case Role::kServer:
      return "server";
    case Role::kWorker:
      return "worker";
  }
  return "unknown role";
}

std::string NodeId::ToString() const {
  if (role == Role::kThisNode) return "this node";
  if (role == Role::kScheduler) return "the scheduler";
  return std::string(RoleName(role)) + (rank < 0 ? " (no rank yet)" : " " + std::to_string(rank));
}

std::string Address::ToString() const {
  if (lane == kApplicationLane) return node.ToString() + " application";
  if (lane == kControlLane) return node.ToString() + " control";
  if (lane == kHeartbeatLane) return node.ToString() + " heartbeat";
  return node.ToString() + " lane " + std::to_string(lane - kFirstDataLane);
}

}  // namespace poseidon
