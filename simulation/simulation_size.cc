#include "simulation/simulation_size.h"

#include <cstdio>
#include <string>

#include "collectives/all_reduce_steps.h"
#include "core/error.h"
#include "proto/bucket.h"
#include "simulation/compute_walk.h"

namespace poseidon {
namespace {

// Measured with LeNet on 10,000 to 100,000 workers and as many servers, with ResNet-50 on 10,000
// workers, and with LeNet over sufficient factors on 2,000; rounded up.
constexpr double kBytesPerNode = 12 << 10;
constexpr double kBytesPerLayer = 1 << 10;  // of each worker
constexpr double kBytesPerMessage = 256;

std::string Gigabytes(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GB", bytes / 1e9);
  return text;
}

// Of all workers together.
double AllReduceMessages(const Plan& plan, const BucketPlan& bucket) {
  double messages = 0;
  for (int chunk = 0; chunk < bucket.chunks_size(); ++chunk) {
    const Range all{0, bucket.chunks(chunk).size()};
    const AllReduceSteps steps(bucket.scheme(), plan, chunk, all, 0, plan.workers());
    for (int i = 0; i < steps.size(); ++i) {
      if (steps.At(i).kind == Operation::Kind::kSend) ++messages;
    }
  }
  return messages * plan.workers();
}

double MessagesOf(const Plan& plan, const BucketPlan& bucket) {
  const double workers = plan.workers();
  const double chunks = bucket.chunks_size();
  constexpr double kFactors = 2;  // u and v
  switch (bucket.scheme()) {
    case SFB:
      return kFactors * workers * (workers - 1);
    case ADAM:
      return (kFactors + chunks) * workers;
    case RING:
    case HALVING_DOUBLING:
    case TORUS:
      return AllReduceMessages(plan, bucket);
    default:
      return 2 * workers * chunks;  // a gradient to the server, and new values back
  }
}

}  // namespace

double DataMessages(const Plan& plan) {
  double messages = 0;
  for (const BucketPlan& bucket : plan.buckets()) messages += MessagesOf(plan, bucket);
  return messages;
}

double NodeMemory(const Cluster& cluster, int layers, int64_t iterations) {
  const double workers = cluster.workers();
  return kBytesPerNode * (workers + cluster.servers()) + kBytesPerLayer * workers * layers +
         sizeof(IterationTimes) * workers * static_cast<double>(iterations);
}

double MessageMemory(const Plan& plan) {
  double messages = 0;
  for (const BucketPlan& bucket : plan.buckets()) {
    if (bucket.scheme() == SFB && !bucket.factor_ring()) messages += MessagesOf(plan, bucket);
  }
  return kBytesPerMessage * messages;
}

void CheckSimulationMemory(const Cluster& cluster, int64_t iterations, double bytes,
                           int64_t available, int simulations) {
  if (bytes <= static_cast<double>(available)) return;
  throw Error(ExitCode::kFailure, "simulating " + std::to_string(iterations) + " iterations of " +
                                      std::to_string(cluster.workers()) + " workers and " +
                                      std::to_string(cluster.servers()) + " servers takes about " +
                                      Gigabytes(bytes) + " of memory, and " +
                                      Gigabytes(static_cast<double>(available)) +
                                      " are available; simulate fewer" +
                                      (simulations > 1 ? ", or give fewer --threads" : ""));
}

void CheckMemoryOfSimulations(double bytes, int64_t available) {
  if (bytes <= static_cast<double>(available)) return;
  throw Error(ExitCode::kFailure, "all simulations of this process together take about " +
                                      Gigabytes(bytes) + " of memory, and " +
                                      Gigabytes(static_cast<double>(available)) +
                                      " are available; give fewer --threads");
}

}  // namespace poseidon
