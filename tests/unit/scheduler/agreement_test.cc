// What the nodes of a job must agree on: their configs and files before it, their parameters after
// it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/agreement/config_difference.h"
#include "scheduler/agreement/input_agreement.h"
#include "scheduler/report/parameter_agreement.h"
#include "transport/address.h"

namespace poseidon {
namespace {

using testing::HasSubstr;
using testing::Not;

wire::Node NodeOf(int rank) {
  wire::Node node;
  node.set_role(static_cast<uint32_t>(Role::kWorker));
  node.set_rank(rank);
  node.set_host("node" + std::to_string(rank));
  node.set_pid(7);
  return node;
}

WorkerInputs Worker(int rank, int64_t snapshot, int64_t records, uint64_t fingerprint = 1) {
  WorkerInputs worker{NodeOf(rank), {}};
  worker.inputs.set_first_iteration(snapshot);
  if (snapshot > 0) worker.inputs.set_snapshot("x_iter.solverstate");
  if (records > 0) {
    wire::TrainingData& data = *worker.inputs.add_data();
    data.set_layer("digits");
    data.set_records(records);
    data.set_fingerprint(fingerprint);
  }
  return worker;
}

TEST(ConfigDifferenceTest, WhoComesToAJobOfPoseidonRunIsToldWhichConfigItNeeds) {
  Job scheduler;
  scheduler.set_name("lenet");
  scheduler.set_run(7);
  Job node;
  node.set_name("lenet");  // as in the file that `poseidon run` was given
  EXPECT_THAT(DescribeDifference(scheduler, &node),
              HasSubstr("the job was started by `poseidon run` or submitted to Slurm; start this "
                        "process with the job.prototxt in that job's output directory or, "));
  node.set_name("other");
  EXPECT_THAT(DescribeDifference(scheduler, &node), HasSubstr("it was started for another run"));
  node.set_name("lenet");
  node.set_run(8);
  EXPECT_THAT(DescribeDifference(scheduler, &node), HasSubstr("it was started for another run"));
}

TEST(InputAgreementTest, WhoTakesTheFirstWorkersPlaceBeginsWhereThatWouldHave) {
  EXPECT_EQ(DescribeOtherStart(Worker(0, 200, 60), 200), "");
  EXPECT_EQ(DescribeOtherStart(Worker(0, 0, 60), 0), "");
  EXPECT_THAT(DescribeOtherStart(Worker(0, 0, 60), 200),
              HasSubstr("found no snapshot, but the job goes on from that of iteration 200: copy "
                        "that to node0"));
  EXPECT_THAT(DescribeOtherStart(Worker(0, 100, 60), 0),
              HasSubstr("found the snapshot of iteration 100, but the job begins without one"));
}

TEST(InputAgreementTest, SameFilesAgreeAndSoDoThoseThatNobodyNeeds) {
  EXPECT_EQ(DescribeDisagreement({Worker(0, 0, 0)}), "");
  EXPECT_EQ(DescribeDisagreement({Worker(0, 200, 60), Worker(1, 0, 60), Worker(2, 100, 60)}), "");
  // A program that does not say what it reads.
  EXPECT_EQ(DescribeDisagreement({Worker(0, 0, 60), Worker(1, 0, 0)}), "");
}

TEST(InputAgreementTest, ASnapshotThatIsNewerThanWorkerZerosIsNotPassedOver) {
  EXPECT_EQ(
      DescribeDisagreement({Worker(0, 0, 60), Worker(1, 200, 60)}),
      "worker 0 (node0, process 7), whose snapshot the job goes on from, has none, but worker 1 "
      "(node1, process 7) has that of iteration 200, x_iter.solverstate: start worker 0 there "
      "(--rank=0), copy the snapshot to node0, or remove it to begin without it");
  EXPECT_THAT(DescribeDisagreement({Worker(0, 100, 60), Worker(1, 0, 60), Worker(2, 101, 60)}),
              HasSubstr("has that of iteration 100, x_iter.solverstate, but worker 2 (node2"));
}

TEST(InputAgreementTest, OtherDataAreNamedWithTheirMachines) {
  EXPECT_EQ(
      DescribeDisagreement({Worker(0, 0, 240), Worker(1, 0, 240), Worker(2, 0, 60)}),
      "layer \"digits\" reads 240 records on worker 0 (node0, process 7), and 60 on worker 2 "
      "(node2, process 7): every worker reads its part of the same data; copy them anew to all "
      "machines");
  EXPECT_THAT(
      DescribeDisagreement({Worker(0, 0, 60, 1), Worker(1, 0, 60, 2)}),
      HasSubstr("60 records on worker 0 (node0, process 7), and as many, but not the same, on "
                "worker 1 (node1, process 7)"));
}

TEST(InputAgreementTest, OtherNetsSeedsAndValuesThatAreNotTrainedAreNamedWithTheirMachines) {
  WorkerInputs first = Worker(0, 0, 60);
  first.inputs.set_net(1);
  first.inputs.set_seed(2);
  first.inputs.set_untrained(3);
  WorkerInputs other = first;
  other.node = NodeOf(1);
  EXPECT_EQ(DescribeDisagreement({first, other}), "");
  EXPECT_EQ(DescribeDisagreement({first, Worker(1, 0, 60)}), "");

  other.inputs.set_untrained(0);
  EXPECT_EQ(DescribeDisagreement({first, other}),
            "the values that are not trained (lr_mult: 0, BatchNorm's statistics) are not the same "
            "on worker 0 (node0, process 7) and on worker 1 (node1, process 7): every worker reads "
            "them for itself; copy the .caffemodel files that training starts from anew to all "
            "machines");
  other.inputs.set_seed(0);
  EXPECT_EQ(DescribeDisagreement({first, other}),
            "the seed is 2 on worker 0 (node0, process 7), and 0 on worker 1 (node1, process 7): "
            "the order of the data follows from it, of which every worker reads its part; give all "
            "solver files the same random_seed, or the job training.seed");
  other.inputs.set_net(0);
  EXPECT_EQ(DescribeDisagreement({first, other}),
            "the layers of the train net are not the same on worker 0 (node0, process 7) and on "
            "worker 1 (node1, process 7), though their parameters have the same shapes: every "
            "worker must read the same net; copy its file anew to all machines");
}

// It gets these values from the others; at the job's start it would find out that it lacks the
// snapshot.
TEST(InputAgreementTest, WhoComesLaterNeedNotHaveTheValuesThatAreNotTrained) {
  WorkerInputs first = Worker(0, 100, 60);
  first.inputs.set_net(1);
  first.inputs.set_untrained(3);
  WorkerInputs other = Worker(1, 0, 60);
  other.inputs.set_net(1);
  other.inputs.set_untrained(4);
  EXPECT_EQ(DescribeDisagreement({first, other}), "");
  other.inputs.set_first_iteration(100);
  EXPECT_NE(DescribeDisagreement({first, other}), "");
  first.inputs = WithoutStart(first.inputs);
  other.inputs = WithoutStart(other.inputs);
  EXPECT_EQ(DescribeDisagreement({first, other}), "");
  other.inputs.set_net(2);
  EXPECT_THAT(DescribeDisagreement({first, other}), HasSubstr("the layers of the train net"));
}

WorkerReports ReportsOf(const std::vector<std::string>& hashes) {
  WorkerReports reports;
  for (size_t rank = 0; rank < hashes.size(); ++rank) {
    reports[static_cast<int>(rank)].set_rank(static_cast<int>(rank));
    reports[static_cast<int>(rank)].set_parameter_hash(hashes[rank]);
  }
  return reports;
}

TEST(ParameterAgreementTest, WhoseParametersDifferIsNamed) {
  wire::View view;
  for (int rank = 0; rank < 3; ++rank) *view.add_nodes() = NodeOf(rank);
  EXPECT_EQ(DescribeParameterDifference(ReportsOf({"a", "a", "a"}), view), "");
  EXPECT_EQ(DescribeParameterDifference(ReportsOf({"", "a", "a"}), view), "");
  EXPECT_EQ(DescribeParameterDifference(ReportsOf({"", "", ""}), view), "");
  const std::string difference = DescribeParameterDifference(ReportsOf({"", "a", "b"}), view);
  EXPECT_THAT(
      difference,
      HasSubstr("worker 1 (node1, process 7) has hash a, worker 2 (node2, process 7) has hash "
                "b"));
  EXPECT_THAT(difference, HasSubstr("none loads or averages parameters before the end"));
}

TEST(ParameterAgreementTest, AHashThatNobodyGaveIsNotCalledTheSame) {
  EXPECT_EQ(DescribeParameters(ReportsOf({"a", "a"})),
            "all workers ended with the same parameters (hash a)");
  EXPECT_EQ(
      DescribeParameters(ReportsOf({"a", "", "a", ""})),
      "the workers that gave a hash ended with the same parameters (hash a); not given: worker "
      "1, 3");
  EXPECT_THAT(DescribeParameters(ReportsOf({"", ""})), Not(HasSubstr("ended with the same")));
}

}  // namespace
}  // namespace poseidon
