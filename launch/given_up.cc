#include "launch/given_up.h"

#include "proto/journal.pb.h"

namespace poseidon {

std::map<uint64_t, std::string> GivenUpProcesses::TakeNew() {
  std::map<uint64_t, std::string> given_up;
  for (const std::string& text : journal_.TakeNew()) {
    wire::JournalRecord record;
    if (!record.ParseFromString(text)) continue;
    for (const uint64_t incarnation : record.hold().incarnations()) {
      given_up[incarnation] = record.hold().cause();
    }
  }
  return given_up;
}

}  // namespace poseidon
