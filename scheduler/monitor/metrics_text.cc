#include "scheduler/monitor/metrics_text.h"

#include <cmath>

#include "core/http/metrics_writer.h"
#include "core/text/utf8.h"
#include "proto/bucket.h"
#include "proto/model_size.h"
#include "scheduler/monitor/node_state.h"

namespace poseidon {
namespace {

using Labels = MetricsWriter::Labels;

void WriteJob(const JobStatus& status, MetricsWriter& out) {
  out.Family("poseidon_job_info", "gauge", "The job, whose name is a label; always 1.");
  out.Sample(1, {{"job", Printable(status.job)}});
  out.Family("poseidon_job_phase", "gauge", "1 for the phase that the job is in.");
  out.Sample(1, {{"phase", status.phase}});
  out.Family("poseidon_iteration", "gauge",
             "Iterations that all workers have done; goes back when the job recovers.");
  out.Sample(static_cast<double>(status.iteration));
  out.Family("poseidon_iterations_wanted", "gauge", "Iterations of the whole training.");
  if (status.iterations > 0) out.Sample(static_cast<double>(status.iterations));
  out.Family("poseidon_loss", "gauge", "Loss of the newest iteration, mean over the workers.");
  out.Sample(status.loss);
  out.Family("poseidon_images_total", "counter", "Samples that all workers have processed.");
  out.Sample(static_cast<double>(status.images));
  out.Family("poseidon_images_per_second", "gauge", "Of all workers, over the newest iterations.");
  out.Sample(status.images_per_second);
  out.Family("poseidon_iteration_duration_seconds", "gauge", "Mean over the newest iterations.");
  out.Sample(status.iteration_ms / 1000);
  out.Family("poseidon_exposed_communication_seconds", "gauge",
             "Of an iteration, how long computing stood still for the exchange; mean likewise.");
  out.Sample(status.exposed_ms / 1000);
  out.Family("poseidon_seconds_since_progress", "gauge", "Since an iteration was done last.");
  if (status.progressed != Time{}) out.Sample(ToSeconds(status.now - status.progressed));
  out.Family("poseidon_recoveries_total", "counter",
             "How often the job went on after a loss, or as its exchange hung.");
  out.Sample(static_cast<double>(status.recovery_count));
  out.Family("poseidon_test_accuracy", "gauge", "Of the newest test phase.");
  if (status.test && status.test->accuracy) out.Sample(*status.test->accuracy);
  out.Family("poseidon_test_loss", "gauge", "Of the newest test phase.");
  if (status.test && status.test->loss) out.Sample(*status.test->loss);
}

void WriteNodes(const JobStatus& status, MetricsWriter& out) {
  const std::vector<NodeState> states = NodeStates(status);
  const auto labels = [](const NodeState& state) -> Labels {
    return {{"role", RoleName(state.node.role)}, {"rank", std::to_string(state.node.rank)}};
  };
  out.Family("poseidon_node_up", "gauge", "1 for a node that has joined and is not lost.");
  for (const NodeState& state : states) {
    const NodeStatus& node = status.nodes.at(state.node);
    Labels all = labels(state);
    all.push_back({"host", Printable(node.host)});
    out.Sample(node.lost || node.host.empty() ? 0 : 1, all);
  }
  out.Family("poseidon_node_state", "gauge", "1 for the state that the node is in.");
  for (const NodeState& state : states) {
    Labels all = labels(state);
    all.push_back({"state", state.state});
    out.Sample(1, all);
  }
}

void WriteWorkers(const JobStatus& status, MetricsWriter& out) {
  const std::vector<NodeState> states = NodeStates(status);
  const auto family = [&](const std::string& name, const std::string& type, const std::string& help,
                          const auto& value_of) {
    out.Family("poseidon_worker_" + name, type, help);
    for (const NodeState& state : states) {
      if (state.node.role != Role::kWorker) continue;
      out.Sample(value_of(status.nodes.at(state.node), state),
                 {{"rank", std::to_string(state.node.rank)}});
    }
  };
  using Node = NodeStatus;
  using State = NodeState;
  family("iteration", "gauge", "Iterations that the worker has done.",
         [](const Node& node, const State&) { return static_cast<double>(node.done); });
  family("lag_iterations", "gauge", "Iterations behind the furthest worker.",
         [](const Node&, const State& state) { return static_cast<double>(state.lag); });
  family("images_total", "counter", "Samples that the worker has processed.",
         [](const Node& node, const State&) { return static_cast<double>(node.images); });
  family("iteration_duration_seconds", "gauge", "The worker's newest iteration.",
         [](const Node& node, const State&) { return node.iteration_seconds; });
  family("exchange_duration_seconds", "gauge", "The worker's newest exchange that is over.",
         [](const Node& node, const State&) { return node.exchange_seconds; });
  family("exposed_communication_seconds", "gauge",
         "Of that exchange, how long computing stood still for it.",
         [](const Node& node, const State&) { return node.exposed_seconds; });
  family("silent_seconds", "gauge", "Since the worker told of an iteration, or training began.",
         [](const Node&, const State& state) { return state.silent_seconds; });
}

void WriteBuckets(const JobStatus& status, MetricsWriter& out) {
  if (status.plan == nullptr) return;
  const Plan& plan = status.plan->plan();
  // Names of buckets need not differ.
  const auto labels = [&plan](int index) -> Labels {
    const BucketPlan& bucket = plan.buckets(index);
    return {{"index", std::to_string(index)},
            {"bucket", Printable(bucket.name())},
            {"scheme", SchemeName(bucket.scheme())},
            {"codec", CodecName(bucket.codec())}};
  };
  out.Family("poseidon_bucket_parameter_bytes", "gauge", "Size of the bucket's parameters.");
  for (int b = 0; b < plan.buckets_size(); ++b) {
    out.Sample(static_cast<double>(kFloatBytes * FloatCount(plan.buckets(b))), labels(b));
  }
  out.Family("poseidon_bucket_exchange_predicted_seconds", "gauge",
             "From the bucket's gradients ready to its new values, as the plan has it.");
  for (int b = 0; b < plan.buckets_size(); ++b) {
    if (!plan.buckets(b).has_prediction()) continue;
    out.Sample(plan.buckets(b).prediction().exchange_ms() / 1000, labels(b));
  }
  out.Family("poseidon_bucket_exchange_measured_seconds", "gauge",
             "The same as measured, mean over workers and iterations.");
  for (int b = 0; b < plan.buckets_size(); ++b) {
    out.Sample(status.measured_ms[b] / 1000, labels(b));
  }
}

}  // namespace

std::string MetricsText(const JobStatus& status) {
  MetricsWriter out;
  WriteJob(status, out);
  WriteNodes(status, out);
  WriteWorkers(status, out);
  WriteBuckets(status, out);
  return out.Take();
}

}  // namespace poseidon
