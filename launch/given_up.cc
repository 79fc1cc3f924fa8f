#include "launch/given_up.h"

#include <algorithm>

#include "proto/journal.pb.h"
#include "transport/address.h"

namespace poseidon {

std::map<uint64_t, std::string> GivenUpProcesses::TakeNew() {
  std::map<uint64_t, std::string> given_up;
  for (const std::string& text : journal_.TakeNew()) {
    wire::JournalRecord record;
    if (!record.ParseFromString(text)) continue;
    if (record.has_leave()) leaving_.insert(record.leave().worker());
    if (record.leave().stays()) leaving_.erase(record.leave().worker());
    const wire::HoldRecord& hold = record.hold();
    for (int i = 0; i < std::min(hold.lost_size(), hold.incarnations_size()); ++i) {
      const bool is_worker = hold.lost(i).role() == static_cast<uint32_t>(Role::kWorker);
      const bool leaves = is_worker && leaving_.erase(hold.lost(i).rank()) > 0;
      if (!leaves) given_up[hold.incarnations(i)] = hold.cause();
    }
  }
  return given_up;
}

}  // namespace poseidon
