#include "planner/policies.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <string_view>

namespace poseidon {
namespace {

constexpr int64_t kLargestKvPair = 536870912;  // what communication.kv_pair_bytes may be

constexpr const char* kCaffePs = "CAFFE_PS";
constexpr std::string_view kAll = "ALL_";  // before the name of a scheme

std::string InUpperCase(std::string name) {
  for (char& letter : name) letter = static_cast<char>(std::toupper(letter));
  return name;
}

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
  NamedPolicies policies;
  for (const Communication::Policy policy :
       {Communication::BYTES, Communication::TIME, Communication::ALL_PS, Communication::ALL_SFB,
        Communication::ALL_RING, Communication::ALL_HALVING_DOUBLING, Communication::ALL_TORUS,
        Communication::ALL_ADAM}) {
    policies.emplace_back(Communication::Policy_Name(policy), Communication())
        .second.set_policy(policy);
  }
  return policies;
}

NamedPolicies SimulatedPolicies() {
  NamedPolicies policies = {{kCaffePs, WholeLayersOnServers()},
                            {"WFBP", PapersOwn(Communication::ALL_PS)},
                            {"POSEIDON", PapersOwn(Communication::BYTES)}};
  for (auto& policy : PlannedPolicies()) policies.push_back(std::move(policy));
  return policies;
}

std::optional<NamedPolicies::value_type> FindPolicy(const NamedPolicies& policies,
                                                    const std::string& name) {
  const auto called = [&](const auto& is) {
    const auto found = std::find_if(policies.begin(), policies.end(),
                                    [&](const auto& policy) { return is(policy.first); });
    return found == policies.end() ? std::nullopt : std::optional(*found);
  };
  const std::string upper = InUpperCase(name);
  if (auto found = called([&](const std::string& policy) { return policy == upper; })) return found;
  const auto was_called = [&](const std::string& policy) {
    return InUpperCase(SystemOf(policy)) == upper;
  };
  if (auto found = called(was_called)) return found;
  if (!was_called(kCaffePs)) return std::nullopt;
  return called([](const std::string& policy) { return policy == "ALL_PS"; });
}

std::string RenamingOf(const std::string& name, const std::string& policy) {
  if (InUpperCase(name) == policy) return "";
  return "\"" + name + "\" is now called " + policy;
}

std::string SystemOf(const std::string& policy) {
  if (policy == kCaffePs) return "ps";
  const bool one_scheme = policy.starts_with(kAll) && policy != "ALL_PS";
  std::string system = one_scheme ? policy.substr(kAll.size()) : policy;
  for (char& letter : system) letter = static_cast<char>(std::tolower(letter));
  return system;
}

}  // namespace poseidon
