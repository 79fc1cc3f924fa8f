// All actors of a small job in virtual time, and in it a node that sends what libFuzzer makes up
// (tests/simulation/recovery/traitor.h): each envelope is one that a node of the job has sent, with
// changes. The job may end badly. No actor may crash, and none may wait for ever.
#include <glog/logging.h>

#include <vector>

#include "tests/fuzz/fuzz.h"
#include "tests/simulation/recovery/recovery_case.h"
#include "tests/simulation/recovery/traitor.h"

namespace poseidon {
namespace {

// A job's deadlines come one behind the other (heartbeats 1 s, stalls 5 s, joining 300 s, each up
// to a few times); what lasts longer hangs.
constexpr Duration kHangs = Seconds(3000);
constexpr int kMostEnvelopes = 8;

struct FuzzedJob {
  SimulatedClusterOptions options;
  Duration span;  // of the job when nobody disturbs it
};

// One a scheme, with recovery and without; and those whose servers keep the parameters.
std::vector<FuzzedJob> MakeJobs() {
  std::vector<SimulatedClusterOptions> trainings = TinyTrainings();
  for (const auto policy : {Communication::ALL_PS, Communication::ALL_ADAM}) {
    trainings.push_back(UpdatingAtServers(trainings[0], policy));
  }
  trainings.push_back(Shrinking(trainings[0]));
  std::vector<FuzzedJob> jobs;
  for (SimulatedClusterOptions& options : trainings) {
    for (const bool recovers : {true, false}) {
      if (!recovers) options.job.clear_recovery();
      SimulatedCluster cluster(options);
      CHECK(cluster.Run(Time(kHangs)));
      jobs.push_back({options, cluster.runtime().now()});
    }
  }
  return jobs;
}

// Numbers that the fuzzer's bytes are; 0 when there are no more.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : next_(data), end_(data + size) {}

  uint64_t Below(uint64_t below) {
    uint64_t value = 0;
    for (uint64_t most = below - 1; most > 0; most >>= 8U) {
      value = value << 8U | (next_ == end_ ? 0 : *next_++);
    }
    return value % below;
  }

 private:
  const uint8_t* next_;
  const uint8_t* end_;
};

}  // namespace
}  // namespace poseidon

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  // What actors say of the envelopes would be most of the time.
  FLAGS_minloglevel = google::FATAL;
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace poseidon;
  static const std::vector<FuzzedJob> jobs = MakeJobs();
  Bytes bytes(data, size);
  const FuzzedJob& job = jobs[bytes.Below(jobs.size())];
  SimulatedClusterOptions options = job.options;
  Traitor traitor([&](uint64_t below) { return bytes.Below(below); }, options);
  SimulatedCluster cluster(options);
  traitor.Disturb(cluster, 1 + static_cast<int>(bytes.Below(kMostEnvelopes)), job.span);
  CHECK(cluster.Run(Time(kHangs + job.span))) << "it hangs:\n" << traitor.said();
  return 0;
}
