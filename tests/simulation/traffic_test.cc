// Bytes on the wire equal the reference's formulas, per scheme, to the float.
#include <gtest/gtest.h>

#include <map>

#include "proto/bucket.h"
#include "tests/simulation/training_case.h"

namespace poseidon {
namespace {

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

// Floats that all workers together send under an all-reduce of `floats`: ring and torus move the
// least possible, 2 (P - 1) F, and halving-doubling too among a power of two. Otherwise its binary
// blocks send more: 0 stands for what no formula is known for.
int64_t AllReduceFloats(Scheme scheme, int64_t floats, int64_t workers) {
  if (scheme == HALVING_DOUBLING && (workers & (workers - 1)) != 0) return 0;
  return 2 * (workers - 1) * floats;
}

// What the reference says that frames of each kind carry in a training, in floats.
std::map<MessageKind, int64_t> FloatsOfReference(const Plan& plan, const ModelSpec& model,
                                                 int64_t iterations) {
  std::map<MessageKind, int64_t> floats;
  const int64_t workers = plan.workers();
  for (const BucketPlan& bucket : plan.buckets()) {
    const int64_t parameters = FloatCount(bucket);
    const InnerProductSpec& product = model.layers(bucket.first_layer()).inner_product();
    const int64_t factors = product.rows() * (product.outputs() + product.inputs());
    const int64_t dense = workers * parameters * iterations;
    if (UsesServers(bucket.scheme())) {
      // Values also come once at the start.
      floats[MessageKind::kInitialValues] += parameters;
      floats[MessageKind::kValues] += workers * parameters;
      floats[bucket.update_at_workers() ? MessageKind::kGradientSum : MessageKind::kValues] +=
          dense;
    } else {
      floats[MessageKind::kInitialValues] += (workers - 1) * parameters;
    }
    if (bucket.scheme() == PS) floats[MessageKind::kGradient] += dense;
    if (bucket.scheme() == ADAM) floats[MessageKind::kFactors] += workers * factors * iterations;
    if (bucket.scheme() == SFB) {
      floats[MessageKind::kFactors] += workers * (workers - 1) * factors * iterations;
    }
    if (IsAllReduce(bucket.scheme())) {
      floats[MessageKind::kReduce] +=
          AllReduceFloats(bucket.scheme(), parameters, workers) * iterations;
    }
  }
  return floats;
}

void ExpectTrafficOfReference(SimulatedClusterOptions options) {
  Wire wire;
  Watch(wire, options);
  SimulatedCluster cluster(options);
  ASSERT_TRUE(cluster.Run(kForever));
  ExpectAllEnded(cluster, ExitCode::kSuccess);
  const Plan& plan = cluster.scheduler().plan->plan();
  for (const auto& [kind, floats] :
       FloatsOfReference(plan, options.work.model, options.work.iterations)) {
    if (kind == MessageKind::kReduce && floats == 0) continue;
    EXPECT_EQ(wire.Bytes(kind), 4 * floats) << KindName(kind);
  }
  EXPECT_EQ(static_cast<int64_t>(cluster.scheduler().reports.size()), plan.workers());
  // What the workers have counted is what the network has seen.
  int64_t sent = 0;
  int64_t received = 0;
  for (const auto& [rank, report] : cluster.scheduler().reports) {
    ASSERT_EQ(report.buckets_size(), plan.buckets_size());
    for (const wire::BucketTraffic& traffic : report.buckets()) {
      sent += traffic.bytes_sent();
      received += traffic.bytes_received();
    }
  }
  const int64_t among_workers =
      wire.Bytes(MessageKind::kFactors) + wire.Bytes(MessageKind::kReduce);
  EXPECT_EQ(sent, wire.Bytes(MessageKind::kGradient) + among_workers);
  int64_t initial = 0;
  int64_t pushed = 0;
  for (const BucketPlan& bucket : plan.buckets()) {
    if (UsesServers(bucket.scheme())) initial += 4 * plan.workers() * FloatCount(bucket);
    if (bucket.scheme() != ADAM) continue;
    const InnerProductSpec& product =
        options.work.model.layers(bucket.first_layer()).inner_product();
    pushed += 4 * plan.workers() * options.work.iterations * product.rows() *
              (product.outputs() + product.inputs());
  }
  EXPECT_EQ(received, wire.Bytes(MessageKind::kValues) - initial +
                          wire.Bytes(MessageKind::kGradientSum) + among_workers - pushed);
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
    const BucketPlan& plan = cluster.scheduler().plan->plan().buckets(0);
    const int64_t floats = policy == Communication::ALL_PS ? plan.floats_ps() : plan.floats_sfb();
    // Every byte is sent by one node and received by another.
    EXPECT_EQ(2 * between_machines, 3 * nodes * 4 * floats);
  }
}

}  // namespace
}  // namespace poseidon
