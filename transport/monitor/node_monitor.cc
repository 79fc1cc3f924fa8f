#include "transport/monitor/node_monitor.h"

#include <ctime>

#include "core/http/access.h"
#include "core/http/metrics_writer.h"
#include "core/process/memory.h"
#include "core/time.h"
#include "transport/monitor/node_metrics.h"

namespace poseidon {
namespace {

// One for a probe, and some for programs that are slow to ask.
constexpr int kThreads = 4;

HttpOptions OptionsOf(const Monitor& monitor) {
  const std::string token = monitor.token_file().empty() ? "" : ReadToken(monitor.token_file());
  return {monitor.address(), monitor.node_port(), token, kThreads, "monitor.node_port"};
}

double ProcessorSeconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) * 1e-9;
}

}  // namespace

NodeMonitor::NodeMonitor(const Monitor& monitor, const Shown& shown)
    : shown_(shown), server_(OptionsOf(monitor)) {
  server_.Get("/metrics", [this](const httplib::Request&, httplib::Response& response) {
    response.set_content(Metrics(), MetricsWriter::kContentType);
  });
  server_.Get("/healthz", [this](const httplib::Request&, httplib::Response& response) {
    if (shown_.rank < 0) return Say(response, 503, "the node has not joined the job yet");
    Say(response, 200, "ok");
  });
  server_.Start();
}

std::string NodeMonitor::Metrics() const {
  const TransportCounters& counters = shown_.counters;
  return NodeMetricsText(
      {.role = RoleName(shown_.role),
       .rank = shown_.rank,
       .iteration = shown_.iteration,
       .messages_sent = counters.frames_sent,
       .messages_received = counters.frames_received,
       .bytes_sent = counters.bytes_sent,
       .bytes_received = counters.bytes_received,
       .messages_malformed = counters.malformed_frames,
       .messages_unroutable = counters.unroutable,
       .connections_rejected = counters.rejected_connections,
       .connections_refused = counters.refused_connections,
       .messages_queued = counters.queued_frames,
       .bytes_queued = counters.queued_bytes,
       .update_seconds = ToSeconds(std::chrono::nanoseconds(counters.busy_nanoseconds.load())),
       .processor_seconds = ProcessorSeconds(),
       .resident_bytes = ResidentMemory()});
}

}  // namespace poseidon
