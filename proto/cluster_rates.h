// What the rates and delays of a cluster can be, in flags, job configs and experiment files: the
// one place that says it. The ranges hold every machine and network that training has been tried
// on, with room for what may come; a value outside is a mistaken unit, or would make predictions of
// nothing but rounding.
//
//   operations a second                  1e6 to 1e18
//   bytes added up or updated a second   1e6 to 1e18
//   images a second of one device        1e-6 to 1e9
//   a link, also its goodput             100Kbps to 1000Tbps
//   a latency, a message's cost          0s to 1min
//   a worker's compute_factor            0.001 to 1000
//
// Every check throws ConfigError that begins with `name`, says the value and the range, and is
// thread-safe:
//
//   CheckBitRate("--bandwidth", "10bps");
//   // --bandwidth is 10bps; it must be between 100Kbps and 1000Tbps
#pragma once

#include <cstdint>
#include <string>

#include "proto/job.pb.h"

namespace poseidon {

// Of a link, in bits a second: 1000Tbps.
inline constexpr int64_t kMostBitRate = 1'000'000'000'000'000;

void CheckOperationRate(const std::string& name, double operations_per_second);
// The nearest one in the range, for one that follows from others.
double NearestOperationRate(double operations_per_second);
void CheckByteRate(const std::string& name, double bytes_per_second);
void CheckImageRate(const std::string& name, double images_per_second);
void CheckComputeFactor(const std::string& name, double factor);
// Texts as core/units.h reads them.
void CheckBitRate(const std::string& name, const std::string& text);
void CheckDelay(const std::string& name, const std::string& text);
// The share, which is above 0 and at most 1, leaves a link of `bandwidth` a rate in the range.
void CheckGoodput(const std::string& name, double share, const std::string& bandwidth);

}  // namespace poseidon
