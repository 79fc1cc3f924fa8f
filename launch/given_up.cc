#include "launch/given_up.h"

#include <algorithm>

#include "proto/journal.pb.h"

namespace poseidon {

std::map<uint64_t, std::string> GivenUpProcesses::TakeNew() {
  std::map<uint64_t, std::string> given_up;
  for (const std::string& text : journal_.TakeNew()) {
    wire::JournalRecord record;
    if (!record.ParseFromString(text)) continue;
    const wire::HoldRecord& hold = record.hold();
    for (int i = 0; i < std::min(hold.lost_size(), hold.incarnations_size()); ++i) {
      given_up[hold.incarnations(i)] = hold.cause();
    }
  }
  return given_up;
}

}  // namespace poseidon
