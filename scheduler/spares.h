// Spares: processes that wait to take a lost one's rank (recovery.spare_workers, spare_servers).
//
// A spare has no rank, is in no view and computes nothing. It repeats its registration, which
// stands for a heartbeat; so another scheduler of the job learns of it by itself.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/time.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"
#include "transport/address.h"

namespace poseidon {

// Processes that are no nodes have ranks below 0: first so many guests, who are answered and
// forgotten, then the spares.
constexpr int kGuests = 64;

struct Spare {
  Address address;  // that no node with a rank has
  wire::Register request;
  Time last_heard{};
};

// A value; not thread-safe.
class Spares {
 public:
  explicit Spares(const Recovery& recovery) : recovery_(recovery) {}

  // The process is a spare from now on, or is one already: where its messages go. Not one that
  // wants a certain rank, and not more of a role than the config says.
  std::optional<Address> Keep(const wire::Register& request, Time now);
  // The one of the role that has waited longest; it is a spare no more.
  std::optional<wire::Register> Take(Role role);
  bool Has(uint64_t incarnation) const;
  void Forget(uint64_t incarnation);
  // Forgets those that stopped repeating their registration; returns them.
  std::vector<wire::Node> DropSilent(Time now, Duration allowed_silence);
  // In order of arrival.
  const std::vector<Spare>& all() const { return spares_; }

 private:
  int Limit(Role role) const {
    return role == Role::kWorker ? recovery_.spare_workers() : recovery_.spare_servers();
  }

  // Those of earlier spares are given again, so that there are no more connections than spares.
  Address FreeAddress(Role role) const;

  Recovery recovery_;
  std::vector<Spare> spares_;
};

}  // namespace poseidon
