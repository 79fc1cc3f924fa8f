// Bytes on the wire equal the cost model's formulas, per layer and scheme, to the float.
#include <gtest/gtest.h>

#include "scheduler/cost_model.h"
#include "tests/simulation/training_case.h"

namespace poseidon {
namespace {

int64_t Floats(const LayerPlan& layer) {
  int64_t floats = 0;
  for (const Chunk& chunk : layer.chunks()) floats += chunk.size();
  return floats;
}

// Counts what leaves, by kind, as the network sees it.
struct Wire {
  std::map<MessageKind, int64_t> bytes;
  int64_t control_bytes = 0;
  int64_t Bytes(MessageKind kind) const {
    const auto found = bytes.find(kind);
    return found == bytes.end() ? 0 : found->second;
  }
};

void Watch(Wire& wire, SimulatedClusterOptions& options) {
  options.network.faults.delay = 1e-12;  // so that the filter is asked
  options.network.fault_filter = [&wire](const Envelope& envelope) {
    const auto size = static_cast<int64_t>(envelope.body.size());
    (IsData(envelope) ? wire.bytes[envelope.kind] : wire.control_bytes) += size;
    return false;
  };
}

void ExpectTrafficOfReference(SimulatedClusterOptions options) {
  Wire wire;
  Watch(wire, options);
  SimulatedCluster cluster(options);
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kSuccess);
  const Plan& plan = cluster.scheduler().plan->plan();
  const int64_t workers = plan.workers();
  const int64_t iterations = options.work.iterations;
  int64_t dense = 0;
  int64_t factors = 0;
  int64_t initial = 0;
  for (int layer = 0; layer < plan.layers_size(); ++layer) {
    SCOPED_TRACE(plan.layers(layer).name());
    const int64_t parameters = Floats(plan.layers(layer));
    int64_t expected = 2 * parameters;
    if (plan.layers(layer).scheme() == SFB) {
      const InnerProductSpec& product = options.work.model.layers(layer).inner_product();
      expected = 2 * product.rows() * (workers - 1) * (product.outputs() + product.inputs());
      factors += workers * expected / 2;
      initial += (workers - 1) * parameters;
    } else {
      dense += workers * parameters;
      initial += parameters;
    }
    for (const auto& [rank, report] : cluster.scheduler().reports) {
      const wire::LayerTraffic& traffic = report.layers(layer);
      EXPECT_EQ(traffic.name(), plan.layers(layer).name());
      EXPECT_EQ(traffic.bytes_sent(), traffic.bytes_received());
      EXPECT_EQ(traffic.bytes_sent() + traffic.bytes_received(), 4 * expected * iterations)
          << "worker " << rank;
    }
  }
  EXPECT_EQ(static_cast<int64_t>(cluster.scheduler().reports.size()), workers);
  EXPECT_EQ(wire.Bytes(MessageKind::kGradient), 4 * dense * iterations);
  // Values also come once at the start.
  EXPECT_EQ(wire.Bytes(MessageKind::kValues), 4 * dense * (iterations + 1));
  EXPECT_EQ(wire.Bytes(MessageKind::kFactors), 4 * factors * iterations);
  EXPECT_EQ(wire.Bytes(MessageKind::kInitialValues), 4 * initial);
  // The job ends with the end still on its way to some.
  cluster.runtime().Run(cluster.runtime().now() + Seconds(0.9));
  int64_t all = wire.control_bytes;
  for (const auto& [kind, bytes] : wire.bytes) all += bytes;
  EXPECT_EQ(cluster.runtime().statistics().body_bytes, all);
}

TEST(TrafficTest, EqualsTheFormulasOfTheReference) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    SimulatedClusterOptions options = RandomTraining(seed);
    if (seed % 2 == 0) options.work.arithmetic = {};
    ExpectTrafficOfReference(options);
    if (HasFailure()) return;
  }
}

// A node that is worker and server, the fourth column of the paper's Table 1: what its NIC carries
// is what its plan predicts.
TEST(TrafficTest, ColocatedNodeMovesWhatTheCostModelSays) {
  const int nodes = 4;
  for (const Communication::Policy policy : {Communication::ALL_PS, Communication::ALL_SFB}) {
    SCOPED_TRACE(Communication::Policy_Name(policy));
    SimulatedClusterOptions options = SmallTraining(
        nodes, nodes, {InnerProductLayer("fc", 64, 64, 4)}, 3, std::chrono::milliseconds(1));
    // As in the paper, without the bias; equal KV pairs, as many on each server.
    options.work.model.mutable_layers(0)->mutable_blobs()->RemoveLast();
    options.work.arithmetic = {};
    options.job.mutable_communication()->set_policy(policy);
    options.job.mutable_communication()->set_kv_pair_bytes(1024);
    int64_t between_machines = 0;
    options.network.faults.delay = 1e-12;  // so that the filter is asked
    options.network.fault_filter = [&](const Envelope& envelope) {
      // Node i's worker and server are on machine i.
      if (IsData(envelope) && envelope.kind != MessageKind::kInitialValues &&
          envelope.from.node.rank != envelope.to.node.rank &&
          (envelope.kind != MessageKind::kValues || envelope.iteration > 0)) {
        between_machines += static_cast<int64_t>(envelope.body.size());
      }
      return false;
    };
    SimulatedCluster cluster(options);
    ASSERT_TRUE(cluster.Run(kForever));
    const LayerPlan& plan = cluster.scheduler().plan->plan().layers(0);
    const int64_t floats = policy == Communication::ALL_PS ? plan.floats_ps() : plan.floats_sfb();
    // Every byte is sent by one node and received by another.
    EXPECT_EQ(2 * between_machines, 3 * nodes * 4 * floats);
  }
}

}  // namespace
}  // namespace poseidon
