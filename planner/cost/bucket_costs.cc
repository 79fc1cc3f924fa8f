#include "planner/cost/bucket_costs.h"

#include <algorithm>
#include <vector>

#include "collectives/traffic.h"
#include "proto/bucket.h"
#include "proto/model_size.h"

namespace poseidon {
namespace {

// What each machine sends and receives of a bucket with servers: `up` bytes from every worker to
// the chunk's server, `down` back.
class ServerTraffic {
 public:
  ServerTraffic(const Plan& plan, const ClusterModel& cluster)
      : plan_(plan), cluster_(cluster), sent_(cluster.machines()), received_(cluster.machines()) {}

  void Add(int server, int64_t up, int64_t down) {
    const int owner = cluster_.MachineOfServer(server);
    for (int worker = 0; worker < plan_.workers(); ++worker) {
      if (worker == owner) continue;
      sent_[worker] += up;
      received_[worker] += down;
      sent_[owner] += down;
      received_[owner] += up;
    }
  }
  // What a chunk's owner sends to the server that backs it up.
  void AddReplica(const Chunk& chunk, int64_t bytes) {
    if (!chunk.has_backup()) return;
    const int owner = cluster_.MachineOfServer(chunk.server());
    const int backup = cluster_.MachineOfServer(chunk.backup());
    if (owner == backup) return;
    sent_[owner] += bytes;
    received_[backup] += bytes;
  }
  BucketBytes Most() const {
    return {*std::max_element(sent_.begin(), sent_.end()),
            *std::max_element(received_.begin(), received_.end())};
  }

 private:
  const Plan& plan_;
  const ClusterModel& cluster_;
  std::vector<int64_t> sent_;
  std::vector<int64_t> received_;
};

// Of the first worker, in units of the whole bucket; other workers differ by a rounding.
BucketBytes AllReduceBytes(const Plan& plan, const BucketPlan& bucket) {
  BucketBytes bytes;
  for (int c = 0; c < bucket.chunks_size(); ++c) {
    const Chunk& chunk = bucket.chunks(c);
    const Schedule schedule =
        AllReduceSchedule(bucket.scheme(), plan, c, {0, chunk.size()}, 0, plan.workers());
    for (const Operation& operation : schedule) {
      if (operation.kind == Operation::Kind::kRound) continue;
      const int64_t size = CodedBytes(plan, bucket, operation.range.size);
      (operation.kind == Operation::Kind::kSend ? bytes.sent : bytes.received) += size;
    }
  }
  return bytes;
}

}  // namespace

int64_t CodedBytes(const Plan& plan, const BucketPlan& bucket, int64_t floats) {
  return static_cast<int64_t>(EncodedBytes(CodecOf(plan, bucket), floats));
}

int64_t AnswerBytes(const Plan& plan, const BucketPlan& bucket, int64_t floats) {
  return bucket.update_at_workers() ? CodedBytes(plan, bucket, floats) : floats * kFloatBytes;
}

FactorBytes FactorBytesOf(const Plan& plan, const BucketPlan& bucket, const ModelSpec& model) {
  const InnerProductSpec& product = model.layers(bucket.first_layer()).inner_product();
  return {CodedBytes(plan, bucket, product.rows() * product.outputs()),
          CodedBytes(plan, bucket, product.rows() * product.inputs())};
}

double AddSeconds(int64_t floats, const ClusterModel& cluster) {
  return static_cast<double>(floats * kFloatBytes) / cluster.reduction_rate;
}

double UpdateSeconds(int64_t floats, const ClusterModel& cluster) {
  return static_cast<double>(floats * kFloatBytes) / cluster.update_rate;
}

double GatheredUpdateSeconds(int64_t floats, const ClusterModel& cluster) {
  const double others = std::max(cluster.workers - 1, 1);
  return UpdateSeconds(floats, cluster) * cluster.workers / others;
}

bool DevicesUpdate(const BucketPlan& bucket, const ModelSpec& model, const ClusterModel& cluster) {
  return cluster.devices_update && bucket.update_at_workers() && !model.update_rule().deferred();
}

double MultiplySeconds(const InnerProductSpec& product, int workers, double flops) {
  constexpr double kOperations = 2;  // a multiplication and an addition
  const double rows = static_cast<double>(product.rows()) * workers;
  return kOperations * rows * static_cast<double>(product.outputs() * product.inputs()) / flops;
}

double RebuildSeconds(const Plan& plan, const BucketPlan& bucket, const ModelSpec& model,
                      const ClusterModel& cluster) {
  const InnerProductSpec& product = model.layers(bucket.first_layer()).inner_product();
  return MultiplySeconds(product, plan.workers(), cluster.LaneFlops()) +
         UpdateSeconds(product.outputs() * product.inputs(), cluster);
}

BucketBytes BytesOfBucket(const Plan& plan, const BucketPlan& bucket, const ModelSpec& model,
                          const ClusterModel& cluster) {
  if (IsAllReduce(bucket.scheme())) return AllReduceBytes(plan, bucket);
  ServerTraffic traffic(plan, cluster);
  if (bucket.scheme() == SFB) {
    const FactorBytes factors = FactorBytesOf(plan, bucket, model);
    const int64_t bytes = (plan.workers() - 1) * (factors.u + factors.v);
    return {bytes, bytes};
  }
  if (bucket.scheme() == ADAM) {
    const FactorBytes factors = FactorBytesOf(plan, bucket, model);
    traffic.Add(bucket.chunks(0).server(), factors.u + factors.v, FloatCount(bucket) * kFloatBytes);
    traffic.AddReplica(bucket.chunks(0), plan.workers() * (factors.u + factors.v));
    return traffic.Most();
  }
  for (const Chunk& chunk : bucket.chunks()) {
    traffic.Add(chunk.server(), CodedBytes(plan, bucket, chunk.size()),
                AnswerBytes(plan, bucket, chunk.size()));
    traffic.AddReplica(chunk, chunk.size() * kFloatBytes);  // the sum of all gradients
  }
  return traffic.Most();
}

}  // namespace poseidon
