// JobFields: refuses values of a job's fields, with the place of the field where the job comes from
// a file.
//
// `field` is a path as TextLocations takes it: "cluster.workers". Immutable, so thread-safe.
#pragma once

#include <cstdint>
#include <string>

#include "core/error.h"
#include "proto/job.pb.h"
#include "proto/text_format.h"

namespace poseidon {

class JobFields {
 public:
  // Both outlive this. `locations` is empty for a job that is in no file.
  JobFields(const Job& job, const TextLocations& locations) : job_(job), locations_(locations) {}

  const Job& job() const { return job_; }

  // Throws ConfigError, as the others do that refuse.
  [[noreturn]] void Fail(const std::string& field, const std::string& message) const;
  void CheckRange(const std::string& field, double value, double least, double most) const;
  // A share of a whole: above 0 and at most 1.
  void CheckShare(const std::string& field, double value) const;
  // A count that is given.
  void CheckPositive(const std::string& field, int64_t value) const;
  // What check(field, values...) refuses, one of proto/cluster_rates.h, is said with its place.
  template <typename Check, typename... Values>
  void CheckRate(Check check, const std::string& field, const Values&... values) const {
    try {
      check(field, values...);
    } catch (const ConfigError& error) {
      Fail(field, error.what());
    }
  }

 private:
  const Job& job_;
  const TextLocations& locations_;
};

// A number as a message says it: "2" instead of "2.000000".
std::string NumberText(double value);

}  // namespace poseidon
