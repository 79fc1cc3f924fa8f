#include "proto/cluster_rates.h"

#include <algorithm>

#include "core/error.h"
#include "core/units.h"
#include "proto/job_fields.h"

namespace poseidon {
namespace {

struct Range {
  double least;
  double most;
};

constexpr Range kOperationRate{1e6, 1e18};
constexpr Range kByteRate{1e6, 1e18};
constexpr Range kImageRate{1e-6, 1e9};
constexpr Range kComputeFactor{1e-3, 1e3};
// A model of a gigabyte still crosses the slowest link in a day, and ten thousand times, queued,
// in far less than the three centuries that a simulation's clock holds.
constexpr int64_t kLeastBitRate = 100'000;
constexpr Duration kMostDelay = std::chrono::minutes(1);

void CheckRange(const std::string& name, double value, const Range& range) {
  // In this form a NaN is refused, too.
  if (value >= range.least && value <= range.most) return;
  throw ConfigError(name + " is " + NumberText(value) + "; it must be between " +
                    NumberText(range.least) + " and " + NumberText(range.most));
}

// What `parse` refuses is said with the name.
template <typename Parse>
auto Quantity(const std::string& name, const std::string& text, Parse parse) {
  try {
    return parse(text);
  } catch (const ConfigError& error) {
    throw ConfigError(name + ": " + error.what());
  }
}

}  // namespace

void CheckOperationRate(const std::string& name, double operations_per_second) {
  CheckRange(name, operations_per_second, kOperationRate);
}

double NearestOperationRate(double operations_per_second) {
  return std::clamp(operations_per_second, kOperationRate.least, kOperationRate.most);
}

void CheckByteRate(const std::string& name, double bytes_per_second) {
  CheckRange(name, bytes_per_second, kByteRate);
}

void CheckImageRate(const std::string& name, double images_per_second) {
  CheckRange(name, images_per_second, kImageRate);
}

void CheckComputeFactor(const std::string& name, double factor) {
  CheckRange(name, factor, kComputeFactor);
}

void CheckBitRate(const std::string& name, const std::string& text) {
  const int64_t rate = Quantity(name, text, ParseBitRate);
  if (rate >= kLeastBitRate && rate <= kMostBitRate) return;
  throw ConfigError(name + " is " + text + "; it must be between " + FormatBitRate(kLeastBitRate) +
                    " and " + FormatBitRate(kMostBitRate));
}

void CheckDelay(const std::string& name, const std::string& text) {
  if (Quantity(name, text, ParseDuration) <= kMostDelay) return;
  throw ConfigError(name + " is " + text + "; it must be at most " + FormatDuration(kMostDelay));
}

void CheckGoodput(const std::string& name, double share, const std::string& bandwidth) {
  if (!(share > 0 && share <= 1)) {
    throw ConfigError(name + " is " + NumberText(share) + "; it must be above 0 and at most 1");
  }
  const double rate = share * static_cast<double>(Quantity(name, bandwidth, ParseBitRate));
  if (rate >= static_cast<double>(kLeastBitRate)) return;
  throw ConfigError(name + " is " + NumberText(share) + ", which leaves " + NumberText(rate) +
                    "bps of " + bandwidth + "; it must leave at least " +
                    FormatBitRate(kLeastBitRate));
}

}  // namespace poseidon
