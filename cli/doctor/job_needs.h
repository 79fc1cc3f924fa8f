// What a job needs of its machines, from its config and the files that this names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/doctor/host_checks.h"
#include "proto/job_config.h"
#include "proto/model.pb.h"

namespace poseidon {

struct JobRequirements {
  JobNeeds needs;
  std::vector<std::string> files;      // that every worker reads: solver and nets
  std::vector<std::string> data;       // that every worker trains on
  std::vector<std::string> test_data;  // that worker 0 tests on
  std::vector<std::string> start;      // that worker 0 starts from: weights or a snapshot
  std::optional<ModelSpec> model;      // none where a program of the user's trains
};

// Throws ConfigError for files that are not there or make no sense, DataError where nothing tells
// the shape of the net's samples.
JobRequirements RequirementsOf(const JobConfig& config);

}  // namespace poseidon
