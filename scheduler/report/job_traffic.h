// What the workers of a job reported of the bytes and times of its buckets and servers, summed.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "proto/model.pb.h"
#include "proto/wire.pb.h"

namespace poseidon {

// The reports of the workers that finished, by rank.
using WorkerReports = std::map<int, wire::WorkerReport>;

// Plan.layout of each plan of the job, by Plan.number.
using PlanLayouts = std::map<int, int>;

// What all workers say of one bucket.
struct BucketSums {
  int64_t bytes_sent = 0;
  int64_t bytes_received = 0;
  double milliseconds = 0;  // from ready to fresh, mean over workers and iterations
  int measured_workers = 0;
};

// What one worker exchanged with others.
struct WorkerBytes {
  wire::PeerTraffic all;
  wire::PeerTraffic own_server;  // the one of the worker's rank
};

// The buckets of `plan`, in its order, under all plans of its layout; what belongs to other plans
// of the job is left out.
std::vector<BucketSums> SumBuckets(const Plan& plan, const PlanLayouts& layouts,
                                   const WorkerReports& reports);
// What all workers say of each server, by rank, from the server's point of view.
std::vector<wire::PeerTraffic> SumServers(const Plan& plan, const WorkerReports& reports);
WorkerBytes BytesOf(const wire::WorkerReport& report);

}  // namespace poseidon
