// Job configs: reading, checking, and telling two of them apart.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "core/error.h"
#include "proto/job.pb.h"

namespace poseidon {

// A checked job config.
struct JobConfig {
  Job job;            // its security.key_file is absolute, and its mode CURVE if it has a key
  std::string path;   // of the file, for messages and for paths relative to it
  Location training;  // where the file says what to train, for messages
  // Equal for all nodes that were started from the same settings: a hash of the parsed config, so
  // comments and spacing do not count, nor where this machine keeps the job's key.
  uint64_t fingerprint = 0;
};

// Reads and checks a job config. Throws ConfigError naming file, line and column: unknown fields,
// values out of range, combinations that can't work (proto/compatibility.h), engine REPLAY without
// layers or with such as make no sense. `change` is applied before the checks, for what a command
// line says in place of the file.
JobConfig ReadJobConfig(const std::string& path, const std::function<void(Job&)>& change = {});
// Likewise of a config's text; `name` is what messages call it, and paths are relative to.
JobConfig ParseJobConfig(const std::string& text, const std::string& name);

// The job without its key, and where this machine keeps that: for others to see, and to compare.
Job WithoutKey(Job job);

// The same checks of a job's cluster and communication alone, for one that is in no file. Throws
// ConfigError that names the field.
void CheckClusterAndCommunication(const Job& job);

// Whether the workers measure the links between them before there is a plan: it is made by time,
// and the job does not say what the network can do.
bool MeasuresLinks(const Job& job);

// How many ranks further the workers are to which each measures its link (cluster.link_probe), in
// the order of measuring; none where MeasuresLinks() is false.
std::vector<int> MeasuredDistances(const Job& job);

// `path`, if it exists or is absolute; else it beside the file that names it or in a directory
// above (core/named_file.h). Throws ConfigError if it is not there either, which names `field`, the
// one that has the path, if it is given.
std::string ResolvePath(const std::string& named_in, const std::string& path,
                        const std::string& field = "");
std::string ResolvePath(const JobConfig& config, const std::string& path,
                        const std::string& field = "");
// The solver's path, which a job of our own worker with engine TORCH needs and a user's program
// does not. Throws ConfigError if none is named, or it is not there.
std::string SolverPath(const JobConfig& config);

}  // namespace poseidon
