#include "scheduler/agreement/input_agreement.h"

#include <algorithm>

#include "transport/membership/member.h"

namespace poseidon {
namespace {

std::string DescribeSnapshot(const wire::TrainingInputs& inputs) {
  if (inputs.first_iteration() == 0) return "has none";
  return "has that of iteration " + std::to_string(inputs.first_iteration()) +
         (inputs.snapshot().empty() ? "" : ", " + inputs.snapshot());
}

std::string SnapshotDisagreement(const WorkerInputs& first, const WorkerInputs& other) {
  if (other.inputs.first_iteration() <= first.inputs.first_iteration()) return "";
  return Describe(first.node) + ", whose snapshot the job goes on from, " +
         DescribeSnapshot(first.inputs) + ", but " + Describe(other.node) + " " +
         DescribeSnapshot(other.inputs) +
         ": start worker 0 there (--rank=0), copy the snapshot to " + first.node.host() +
         ", or remove it to begin without it";
}

std::string DataDisagreement(const WorkerInputs& first, const WorkerInputs& other) {
  const int layers = std::min(first.inputs.data_size(), other.inputs.data_size());
  for (int i = 0; i < layers; ++i) {
    const wire::TrainingData& own = first.inputs.data(i);
    const wire::TrainingData& theirs = other.inputs.data(i);
    std::string difference;
    if (own.records() != theirs.records()) {
      difference = std::to_string(own.records()) + " records on " + Describe(first.node) +
                   ", and " + std::to_string(theirs.records()) + " on " + Describe(other.node);
    } else if (own.fingerprint() != theirs.fingerprint()) {
      difference = std::to_string(own.records()) + " records on " + Describe(first.node) +
                   ", and as many, but not the same, on " + Describe(other.node);
    } else {
      continue;
    }
    return "layer \"" + own.layer() + "\" reads " + difference +
           ": every worker reads its part of the same data; copy them anew to all machines";
  }
  return "";
}

std::string NetDisagreement(const WorkerInputs& first, const WorkerInputs& other) {
  const wire::TrainingInputs& own = first.inputs;
  const wire::TrainingInputs& theirs = other.inputs;
  if (own.has_net() && theirs.has_net() && own.net() != theirs.net()) {
    return "the layers of the train net are not the same on " + Describe(first.node) + " and on " +
           Describe(other.node) +
           ", though their parameters have the same shapes: every worker must read the same net; "
           "copy its file anew to all machines";
  }
  if (own.has_seed() && theirs.has_seed() && own.seed() != theirs.seed()) {
    return "the seed is " + std::to_string(own.seed()) + " on " + Describe(first.node) + ", and " +
           std::to_string(theirs.seed()) + " on " + Describe(other.node) +
           ": the order of the data follows from it, of which every worker reads its part; give "
           "all solver files the same random_seed, or the job training.seed";
  }
  return "";
}

// Where the snapshots differ, whoever needs another one finds out for itself.
std::string UntrainedDisagreement(const WorkerInputs& first, const WorkerInputs& other) {
  const wire::TrainingInputs& own = first.inputs;
  const wire::TrainingInputs& theirs = other.inputs;
  if (!own.has_untrained() || !theirs.has_untrained()) return "";
  if (own.first_iteration() != theirs.first_iteration()) return "";
  if (own.untrained() == theirs.untrained()) return "";
  return "the values that are not trained (lr_mult: 0, BatchNorm's statistics) are not the same "
         "on " +
         Describe(first.node) + " and on " + Describe(other.node) +
         ": every worker reads them for itself; copy the .caffemodel files that training starts "
         "from anew to all machines";
}

}  // namespace

std::string DescribeDisagreement(const std::vector<WorkerInputs>& workers) {
  for (const WorkerInputs& worker : workers) {
    std::string disagreement = SnapshotDisagreement(workers[0], worker);
    if (disagreement.empty()) disagreement = DataDisagreement(workers[0], worker);
    if (disagreement.empty()) disagreement = NetDisagreement(workers[0], worker);
    if (disagreement.empty()) disagreement = UntrainedDisagreement(workers[0], worker);
    if (!disagreement.empty()) return disagreement;
  }
  return "";
}

std::string DescribeOtherStart(const WorkerInputs& worker, int64_t first_iteration) {
  const int64_t own = worker.inputs.first_iteration();
  if (own == first_iteration) return "";
  const std::string found =
      Describe(worker.node) +
      ", which took a lost one's rank before anybody had the parameters, found " +
      (own == 0 ? "no snapshot" : "the snapshot of iteration " + std::to_string(own));
  if (first_iteration == 0) {
    return found + ", but the job begins without one: remove it, and start the job again";
  }
  return found + ", but the job goes on from that of iteration " + std::to_string(first_iteration) +
         ": copy that to " + worker.node.host() + ", and start the job again";
}

wire::TrainingInputs WithoutStart(wire::TrainingInputs inputs) {
  inputs.clear_snapshot();
  inputs.clear_first_iteration();
  inputs.clear_untrained();
  return inputs;
}

}  // namespace poseidon
