#include "proto/job_fields.h"

#include <cstdio>

namespace poseidon {

std::string NumberText(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.12g", value);
  return text;
}

void JobFields::Fail(const std::string& field, const std::string& message) const {
  const Location where = locations_.Find(job_, field);
  if (where.file.empty()) throw ConfigError(message);
  throw ConfigError(where, message);
}

void JobFields::CheckRange(const std::string& field, double value, double least,
                           double most) const {
  if (value >= least && value <= most) return;
  Fail(field, field + " is " + NumberText(value) + "; it must be between " + NumberText(least) +
                  " and " + NumberText(most));
}

void JobFields::CheckShare(const std::string& field, double value) const {
  if (value > 0 && value <= 1) return;
  Fail(field, field + " is " + NumberText(value) + "; it must be above 0 and at most 1");
}

void JobFields::CheckPositive(const std::string& field, int64_t value) const {
  if (value >= 1) return;
  Fail(field, field + " is " + std::to_string(value) + "; it must be at least 1");
}

}  // namespace poseidon
