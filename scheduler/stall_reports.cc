#include "scheduler/stall_reports.h"

#include <algorithm>

#include "transport/membership/member.h"

namespace poseidon {

void StallReports::Add(const NodeId& node, wire::Stalled stalled) {
  reports_.emplace_back(node, std::move(stalled));
}

bool StallReports::IsWaiting(const NodeId& node) const {
  return std::any_of(reports_.begin(), reports_.end(),
                     [&](const auto& report) { return report.first == node; });
}

StallReports::Cause StallReports::FindCause() const {
  const auto names_a_cause = [this](const auto& report) {
    const auto& missing = report.second.missing();
    return std::any_of(missing.begin(), missing.end(),
                       [this](const wire::Node& node) { return !IsWaiting(IdOf(node)); });
  };
  auto report = std::find_if(reports_.begin(), reports_.end(), names_a_cause);
  const bool found = report != reports_.end();
  if (!found) report = reports_.begin();
  const auto& [node, stalled] = *report;
  Cause cause{.waiting = node, .waiting_for = stalled.waiting_for(), .missing = {}};
  for (const wire::Node& absent : stalled.missing()) {
    if (!found || !IsWaiting(IdOf(absent))) cause.missing.push_back(IdOf(absent));
  }
  return cause;
}

}  // namespace poseidon
