// NodeMetricsText: what a server or worker tells of itself, for Prometheus. docs/monitoring.md
// lists the metrics.
//
//   response = NodeMetricsText({.role = "worker", .rank = 2, .iteration = 17});
#pragma once

#include <cstdint>
#include <string>

namespace poseidon {

// At one moment.
struct NodeMetrics {
  std::string role;
  int rank = -1;  // -1: not joined yet
  // A worker's, that it computes; of a server, that of the newest gradient.
  int64_t iteration = 0;
  int64_t messages_sent = 0;
  int64_t messages_received = 0;
  int64_t bytes_sent = 0;      // bodies
  int64_t bytes_received = 0;  // bodies
  int64_t messages_malformed = 0;
  int64_t messages_unroutable = 0;
  int64_t connections_rejected = 0;  // ended without a word
  int64_t connections_refused = 0;   // without the key, or from an address that is not allowed
  int64_t messages_queued = 0;
  int64_t bytes_queued = 0;
  double update_seconds = 0;
  double processor_seconds = 0;
  int64_t resident_bytes = 0;  // 0: not known
};

// In the text format 0.0.4. All samples have the labels role and, once it is known, rank, but for
// those of the process, whose names are Prometheus' own.
std::string NodeMetricsText(const NodeMetrics& metrics);

}  // namespace poseidon
