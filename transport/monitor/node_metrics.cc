#include "transport/monitor/node_metrics.h"

#include <limits>

#include "core/http/metrics_writer.h"

namespace poseidon {
namespace {

using Labels = MetricsWriter::Labels;

// Writes families of a node.
class NodeWriter {
 public:
  explicit NodeWriter(const NodeMetrics& metrics) : labels_{{"role", metrics.role}} {
    if (metrics.rank >= 0) labels_.emplace_back("rank", std::to_string(metrics.rank));
  }

  void Gauge(const std::string& name, const std::string& help, double value) {
    out_.Family("poseidon_node_" + name, "gauge", help);
    out_.Sample(value, labels_);
  }
  void Counter(const std::string& name, const std::string& help, double value) {
    CounterFamily(name, help);
    out_.Sample(value, labels_);
  }
  void CounterFamily(const std::string& name, const std::string& help) {
    out_.Family("poseidon_node_" + name, "counter", help);
  }
  void SampleOf(const std::string& reason, double value) {
    Labels labels = labels_;
    labels.emplace_back("reason", reason);
    out_.Sample(value, labels);
  }
  MetricsWriter& out() { return out_; }

 private:
  MetricsWriter out_;
  Labels labels_;
};

double Number(int64_t value) { return static_cast<double>(value); }

void WriteTraffic(const NodeMetrics& metrics, NodeWriter& node) {
  node.Counter("sent_bytes_total", "Bodies of messages that were sent to other nodes.",
               Number(metrics.bytes_sent));
  node.Counter("received_bytes_total", "Bodies of messages that came from other nodes.",
               Number(metrics.bytes_received));
  node.Counter("sent_messages_total", "Messages that were sent to other nodes.",
               Number(metrics.messages_sent));
  node.Counter("received_messages_total", "Messages that came from other nodes.",
               Number(metrics.messages_received));
  node.CounterFamily("dropped_messages_total", "Messages that nobody was given.");
  node.SampleOf("malformed", Number(metrics.messages_malformed));
  node.SampleOf("unroutable", Number(metrics.messages_unroutable));
  node.CounterFamily("rejected_connections_total", "Connections that were not of this job.");
  node.SampleOf("silent", Number(metrics.connections_rejected));
  node.SampleOf("refused", Number(metrics.connections_refused));
  node.Gauge("queued_messages", "Messages that wait for room on the way to other nodes.",
             Number(metrics.messages_queued));
  node.Gauge("queued_bytes", "Their bodies.", Number(metrics.bytes_queued));
}

// By the names that all programs have for these.
void WriteProcess(const NodeMetrics& metrics, MetricsWriter& out) {
  out.Family("process_cpu_seconds_total", "counter", "Processor time of the process.");
  out.Sample(metrics.processor_seconds);
  out.Family("process_resident_memory_bytes", "gauge", "What the process has in memory.");
  out.Sample(metrics.resident_bytes > 0 ? Number(metrics.resident_bytes)
                                        : std::numeric_limits<double>::quiet_NaN());
}

}  // namespace

std::string NodeMetricsText(const NodeMetrics& metrics) {
  NodeWriter node(metrics);
  node.Gauge("joined", "1 once the node has joined the job.", metrics.rank >= 0 ? 1 : 0);
  node.Gauge("iteration",
             "The iteration that a worker computes; of a server, that of the newest gradient.",
             Number(metrics.iteration));
  WriteTraffic(metrics, node);
  node.Counter("update_seconds_total",
               "Time that the data lanes have spent on what came: sums, updates, codecs.",
               metrics.update_seconds);
  WriteProcess(metrics, node.out());
  return node.out().Take();
}

}  // namespace poseidon
