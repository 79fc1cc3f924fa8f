// What the measured network means for a job: pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/doctor/finding.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "proto/wire.pb.h"

namespace poseidon {

// A finding for each link that was measured, beside what `claimed` says of it; no network is
// claimed where the config does not describe one. `names` are the hosts', by the reports' ranks.
Findings CheckLinks(const std::vector<wire::LinkReport>& reports,
                    const std::vector<std::string>& names, const std::optional<Network>& claimed);

// What the planner makes of the job with the network that the config describes, or with the
// defaults where it describes none, and with the measured one.
Findings ComparePlans(const Job& job, const ModelSpec& model, const Network& measured);

}  // namespace poseidon
