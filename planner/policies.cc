#include "planner/policies.h"

#include <cstdint>

namespace poseidon {
namespace {

constexpr int64_t kLargestKvPair = 536870912;  // what communication.kv_pair_bytes may be

// The paper's systems send layers as the backward pass ends with them, and wait for all at the end
// of an iteration (its Algorithm 2).
Communication PapersOwn(Communication::Policy policy) {
  Communication communication;
  communication.set_policy(policy);
  communication.set_by_priority(false);
  communication.set_wait_for_all(true);
  communication.set_lanes(1);
  return communication;
}

// Caffe's parameter servers.
Communication WholeLayersOnServers() {
  Communication communication = PapersOwn(Communication::ALL_PS);
  communication.set_overlap(false);
  communication.set_kv_pair_bytes(kLargestKvPair);
  return communication;
}

}  // namespace

NamedPolicies PlannedPolicies() {
  const std::pair<const char*, Communication::Policy> names[] = {
      {"bytes", Communication::BYTES},
      {"time", Communication::TIME},
      {"ps", Communication::ALL_PS},
      {"sfb", Communication::ALL_SFB},
      {"ring", Communication::ALL_RING},
      {"halving_doubling", Communication::ALL_HALVING_DOUBLING},
      {"torus", Communication::ALL_TORUS},
      {"adam", Communication::ALL_ADAM}};
  NamedPolicies policies;
  for (const auto& [name, policy] : names) {
    policies.emplace_back(name, Communication()).second.set_policy(policy);
  }
  return policies;
}

NamedPolicies SimulatedPolicies() {
  NamedPolicies policies = {{"ps", WholeLayersOnServers()},
                            {"wfbp", PapersOwn(Communication::ALL_PS)},
                            {"poseidon", PapersOwn(Communication::BYTES)}};
  for (auto& policy : PlannedPolicies()) {
    if (policy.first == "ps") policy.first = "all_ps";
    policies.push_back(std::move(policy));
  }
  return policies;
}

}  // namespace poseidon
