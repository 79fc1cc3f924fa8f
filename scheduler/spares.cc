#include "scheduler/spares.h"

#include <algorithm>

namespace poseidon {
namespace {

// Ranks from here downwards.
constexpr int kFirstRank = -1 - kGuests;

}  // namespace

std::optional<Address> Spares::Keep(const wire::Register& request, Time now) {
  const auto known = std::ranges::find_if(spares_, [&](const Spare& spare) {
    return spare.request.incarnation() == request.incarnation();
  });
  if (known != spares_.end()) {
    known->last_heard = now;
    return known->address;
  }
  const Role role = static_cast<Role>(request.node().role());
  const auto waiting = std::ranges::count_if(
      spares_, [&](const Spare& spare) { return spare.address.node.role == role; });
  if (request.node().rank() >= 0 || waiting >= Limit(role)) return std::nullopt;
  const Address address = FreeAddress(role);
  spares_.push_back({.address = address, .request = request, .last_heard = now});
  return address;
}

Address Spares::FreeAddress(Role role) const {
  for (int rank = kFirstRank;; --rank) {
    const Address address{{role, rank}, kControlLane};
    const bool taken =
        std::ranges::any_of(spares_, [&](const Spare& spare) { return spare.address == address; });
    if (!taken) return address;
  }
}

std::optional<wire::Register> Spares::Take(Role role) {
  const auto found = std::ranges::find_if(
      spares_, [&](const Spare& spare) { return spare.address.node.role == role; });
  if (found == spares_.end()) return std::nullopt;
  wire::Register request = std::move(found->request);
  spares_.erase(found);
  return request;
}

bool Spares::Has(uint64_t incarnation) const {
  return std::ranges::any_of(
      spares_, [&](const Spare& spare) { return spare.request.incarnation() == incarnation; });
}

void Spares::Forget(uint64_t incarnation) {
  std::erase_if(spares_,
                [&](const Spare& spare) { return spare.request.incarnation() == incarnation; });
}

std::vector<wire::Node> Spares::DropSilent(Time now, Duration allowed_silence) {
  std::vector<wire::Node> dropped;
  std::erase_if(spares_, [&](const Spare& spare) {
    if (now - spare.last_heard <= allowed_silence) return false;
    dropped.push_back(spare.request.node());
    return true;
  });
  return dropped;
}

}  // namespace poseidon
