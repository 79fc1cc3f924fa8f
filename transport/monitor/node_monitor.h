// NodeMonitor: a server's or worker's own /metrics and /healthz, on threads that run behind all
// others.
//
//   NodeMonitor monitor(job.monitor(), {Role::kServer, rank, iteration, runtime.counters()});
//   LOG(INFO) << "metrics: " << monitor.url();
//
// /healthz is 200 once the node has joined and 503 before. Nothing is done while nobody asks.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "core/http/http_server.h"
#include "proto/job.pb.h"
#include "transport/address.h"
#include "transport/counters.h"

namespace poseidon {

class NodeMonitor {
 public:
  // What is shown, read by any thread. All of it outlives the monitor.
  struct Shown {
    Role role;
    const std::atomic<int>& rank;           // -1: not joined yet
    const std::atomic<int64_t>& iteration;  // see NodeMetrics
    const TransportCounters& counters;
  };

  // Serves at monitor.address and monitor.node_port. Throws ConfigError if the token can't be read,
  // or nothing can listen there.
  NodeMonitor(const Monitor& monitor, const Shown& shown);

  int port() const { return server_.port(); }
  const std::string& url() const { return server_.url(); }

 private:
  std::string Metrics() const;

  const Shown shown_;
  HttpServer server_;
};

}  // namespace poseidon
