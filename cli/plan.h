// `poseidon plan`: the scheduler's plan for a net and a cluster, without either.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "caffe_adapter/shape.h"
#include "core/error.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"

namespace poseidon {

struct PlanOptions {
  std::string net;     // a net prototxt; its training phase is planned
  std::string solver;  // or a solver prototxt, whose net is taken
  int workers = 1;
  int servers = 1;
  std::optional<int64_t> batch;  // samples a worker processes per iteration; by default the net's
  std::optional<Shape> record_shape;  // channels, height, width of the data's records
  Communication communication;        // policy, kv_pair_bytes and lanes count
};

// A model and the plan of its layers, in the same order.
struct PlannedModel {
  ModelSpec model;
  Plan plan;
};

// Throws ConfigError for a net that can't work, DataError where the shape of the data is needed,
// but neither given nor to be found in the net's databases.
PlannedModel PlanModel(const PlanOptions& options);

// For people: a line a layer, then totals and the balance of the servers.
std::string PlanTable(const PlannedModel& planned);

// For programs: `parameters`, `layers[]` with `name`, `type`, `shape`, `parameters`, `scheme`,
// `floats_ps`, `floats_sfb` (null where SFB is impossible), `kv_pairs`; `total`, `server_load`.
std::string PlanJson(const PlannedModel& planned);

// Reads the flags of `poseidon plan --help` and prints the plan. Throws Error.
ExitCode PlanVerb();

}  // namespace poseidon
