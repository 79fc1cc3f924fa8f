// The lists of summary.json; docs/running.md says what their keys are.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "scheduler/report/job_traffic.h"
#include "scheduler/stragglers/straggler_watch.h"

namespace poseidon {

// A layer's bytes are its share of its bucket's, by floats; they add up to the bucket's.
nlohmann::ordered_json LayersJson(const wire::PlanAndModel& plan,
                                  const std::vector<BucketSums>& sums);
nlohmann::ordered_json BucketsJson(const wire::PlanAndModel& plan,
                                   const std::vector<BucketSums>& sums);
// How many workers trained from which iteration on, in a run that began with `first`.
nlohmann::ordered_json TenuresJson(const Plan& plan, int64_t first);
nlohmann::ordered_json WorkersJson(const WorkerReports& reports);
// `servers` by rank.
nlohmann::ordered_json ServersJson(const std::vector<wire::PeerTraffic>& servers);
// `links` by the rank of the worker that has measured them, one of `workers`.
nlohmann::ordered_json LinksJson(const std::map<int, wire::LinkReport>& links, int workers);
nlohmann::ordered_json StragglersJson(const std::vector<Straggler>& stragglers);
nlohmann::ordered_json RecoveriesJson(const std::vector<wire::Recovered>& recoveries);

}  // namespace poseidon
