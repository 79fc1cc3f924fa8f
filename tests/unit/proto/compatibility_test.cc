#include "proto/compatibility.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "proto/text_format.h"

namespace poseidon {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

// The only refusal, as "field: reason", or "" if there is none.
std::string Refused(const std::string& communication, int workers = 6) {
  Job job;
  ParseText("communication { " + communication + " }", "job", job);
  job.mutable_cluster()->set_workers(workers);
  const std::vector<Refusal> refusals = Refusals(job);
  EXPECT_LE(refusals.size(), 1u) << communication;
  if (refusals.empty()) return "";
  EXPECT_THAT(refusals[0].reason, HasSubstr(refusals[0].field));
  return refusals[0].reason;
}

TEST(CombinationsTest, WhatWorksIsNotRefused) {
  for (const std::string communication :
       {"", "policy: ALL_PS codec: ONE_BIT", "policy: ALL_PS codec: TOP_K", "codec: TOP_K",
        "policy: ALL_PS codec: INT8", "codec: INT8", "policy: ALL_RING codec: FP16",
        "policy: ALL_TORUS codec: BF16 grid: 2 grid: 3", "policy: ALL_SFB codec: ONE_BIT",
        "policy: ALL_ADAM codec: FP16", "policy: TIME codec: FP16", "policy: ALL_PS staleness: 3",
        "policy: ALL_PS staleness: -1 update_at: SERVERS", "policy: ALL_PS update_at: SERVERS",
        "update_at: WORKERS codec: FP16", "policy: ALL_RING deterministic: true",
        "policy: ALL_RING update_at: WORKERS", "policy: ALL_TORUS grid: 6",
        "policy: ALL_TORUS grid: 1 grid: 6 grid: 1"}) {
    EXPECT_EQ(Refused(communication), "") << communication;
  }
}

TEST(CombinationsTest, ABalancedBatchIsRefusedWhereItCannotBe) {
  const auto refused = [](const std::string& text) {
    Job job;
    ParseText(text, "job", job);
    job.mutable_cluster()->set_workers(4);
    job.mutable_training()->set_batch(Training::BALANCED);
    std::string reasons;
    for (const Refusal& refusal : Refusals(job)) reasons += refusal.reason + "\n";
    return reasons;
  };
  for (const std::string policy : {"BYTES", "TIME", "ALL_PS", "ALL_RING", "ALL_TORUS"}) {
    EXPECT_EQ(refused("communication { policy: " + policy + " }"), "") << policy;
  }
  EXPECT_EQ(refused("recovery { mode: REPLACE }"), "");
  EXPECT_THAT(refused("communication { policy: ALL_PS staleness: 2 }"),
              HasSubstr("communication.staleness: workers that differ"));
  EXPECT_THAT(refused("communication { policy: ALL_SFB }"), HasSubstr("a row for each sample"));
  EXPECT_THAT(refused("communication { policy: ALL_ADAM }"), HasSubstr("a row for each sample"));
  EXPECT_THAT(refused("recovery { mode: SHRINK }"), HasSubstr("use REPLACE or NONE"));
  EXPECT_THAT(refused("cluster { devices_per_worker: 2 }"), HasSubstr("a worker for each device"));
  EXPECT_THAT(refused("training { device: CUDA }"), HasSubstr("use CPU"));
}

TEST(CombinationsTest, WhatCannotWorkIsRefusedWithItsReason) {
  EXPECT_THAT(Refused("policy: ALL_RING codec: ONE_BIT"),
              HasSubstr("codec: 1-bit cannot work with ring: partial sums would be rounded again"));
  EXPECT_THAT(Refused("policy: ALL_HALVING_DOUBLING codec: TOP_K"), HasSubstr("halving-doubling"));
  EXPECT_THAT(Refused("policy: ALL_RING codec: INT8"), HasSubstr("int8 cannot work with ring"));
  EXPECT_THAT(Refused("policy: TIME deterministic: true"),
              HasSubstr("communication.deterministic"));
  EXPECT_THAT(Refused("policy: ALL_PS staleness: 1 deterministic: true"),
              HasSubstr("depends on timing"));
  EXPECT_THAT(Refused("policy: ALL_PS staleness: -1 codec: FP16"), HasSubstr("codec FP32"));
  EXPECT_THAT(Refused("policy: ALL_PS staleness: -1 update_at: WORKERS"), HasSubstr("update_at"));
  EXPECT_THAT(Refused("staleness: 2"), HasSubstr("Use policy ALL_PS"));
  const auto corrects = [](const std::string& staleness) {
    Job job;
    ParseText("communication { policy: ALL_PS staleness: " + staleness +
                  " } training { large_batch { momentum_correction: true } }",
              "job", job);
    const std::vector<Refusal> refusals = Refusals(job);
    return refusals.empty() ? "" : refusals[0].reason;
  };
  EXPECT_THAT(corrects("-1"), HasSubstr("would multiply the momentum"));
  EXPECT_EQ(corrects("1"), "");
  EXPECT_THAT(Refused("policy: ALL_RING staleness: -1"), HasSubstr("staleness"));
  EXPECT_THAT(Refused("policy: ALL_PS codec: BF16 update_at: SERVERS"),
              HasSubstr("use WORKERS or AUTOMATIC"));
  EXPECT_THAT(Refused("policy: ALL_RING update_at: SERVERS"), HasSubstr("uses no servers"));
  EXPECT_THAT(Refused("grid: 2 grid: 2"), HasSubstr("2 x 2 is not the number of workers, 6"));
  EXPECT_THAT(Refused("grid: -2 grid: -3"), HasSubstr("a dimension of -2"));
  EXPECT_THAT(Refused("grid: 2147483647 grid: 2147483647 grid: 2147483647"), HasSubstr("is not"));
}

// As Refused, of a job that recovers, with fields of the job.
std::string RefusedUnderRecovery(const std::string& fields,
                                 Recovery::Mode mode = Recovery::REPLACE) {
  Job job;
  ParseText(fields, "job", job);
  job.mutable_recovery()->set_mode(mode);
  const std::vector<Refusal> refusals = Refusals(job);
  EXPECT_LE(refusals.size(), 1u) << fields;
  if (refusals.empty()) return "";
  EXPECT_THAT(refusals[0].reason, HasSubstr(refusals[0].field));
  return refusals[0].reason;
}

TEST(CombinationsTest, RecoveryNeedsNothingThatALostNodeAloneHas) {
  const std::pair<std::string, std::string> cases[] = {
      {"communication { policy: ALL_PS update_at: SERVERS }", "communication.update_at: "},
      {"communication { policy: ALL_ADAM }", "communication.policy: the only server"},
      {"cluster { servers: 3 } communication { policy: TIME update_at: SERVERS }",
       "communication.update_at: the optimizer state that servers keep"},
      {"cluster { servers: 3 } communication { update_at: SERVERS } training { batch: BALANCED }",
       "communication.update_at: the optimizer state that servers keep"},
      {"communication { policy: ALL_PS staleness: 2 }", "communication.staleness: "},
      {"communication { policy: ALL_PS staleness: -1 }", "communication.staleness: "}};
  for (const auto& [fields, begin] : cases) {
    const std::string reason = RefusedUnderRecovery(fields);
    EXPECT_THAT(reason, testing::StartsWith(begin)) << fields;
    EXPECT_THAT(reason, HasSubstr("with recovery.mode REPLACE use ")) << fields;
    EXPECT_EQ(RefusedUnderRecovery(fields, Recovery::NONE), "") << fields;
  }
  for (const std::string fields :
       {"", "training { device: CUDA }", "communication { update_at: WORKERS }",
        "communication { policy: ALL_PS codec: FP16 }", "communication { codec: ONE_BIT }",
        "communication { policy: ALL_PS codec: TOP_K }",
        "communication { policy: ALL_PS codec: INT8 }",
        "communication { policy: ALL_RING deterministic: true }",
        "communication { policy: ALL_SFB }", "communication { policy: TIME }",
        "cluster { servers: 2 } communication { policy: ALL_PS update_at: SERVERS }",
        "cluster { servers: 2 } communication { policy: ALL_ADAM }"}) {
    EXPECT_EQ(RefusedUnderRecovery(fields), "") << fields;
  }
}

TEST(CombinationsTest, AGridIsForOneNumberOfWorkers) {
  const std::string grid =
      "cluster { workers: 4 } communication { policy: ALL_TORUS grid: 2 grid: 2 }";
  EXPECT_EQ(RefusedUnderRecovery(grid), "");
  EXPECT_THAT(RefusedUnderRecovery(grid, Recovery::SHRINK),
              testing::StartsWith("communication.grid: it is for one number of workers"));
  EXPECT_THAT(RefusedUnderRecovery("communication { policy: ALL_ADAM }", Recovery::SHRINK),
              HasSubstr("with recovery.mode SHRINK use "));
}

TEST(CombinationsTest, SparesTakeRanksThatAreGivenAgain) {
  for (const std::string field : {"spare_workers", "spare_servers"}) {
    const std::string spares = "recovery { " + field + ": 1 }";
    EXPECT_EQ(RefusedUnderRecovery(spares, Recovery::REPLACE), "");
    for (const Recovery::Mode mode : {Recovery::NONE, Recovery::SHRINK}) {
      EXPECT_THAT(RefusedUnderRecovery(spares, mode),
                  testing::StartsWith("recovery." + field + ": only recovery.mode REPLACE"));
    }
  }
}

TEST(CombinationsTest, OtherwiseIsForThoseThatWait) {
  const std::string shrinks = "recovery { otherwise: SHRINK }";
  EXPECT_EQ(RefusedUnderRecovery(shrinks, Recovery::REPLACE), "");
  EXPECT_EQ(RefusedUnderRecovery("recovery { otherwise: NONE }", Recovery::REPLACE), "");
  for (const Recovery::Mode mode : {Recovery::NONE, Recovery::SHRINK}) {
    EXPECT_THAT(RefusedUnderRecovery(shrinks, mode), HasSubstr("set that mode, or leave it out"));
  }
  EXPECT_THAT(RefusedUnderRecovery("recovery { otherwise: REPLACE }", Recovery::REPLACE),
              testing::StartsWith("recovery.otherwise: "));
  EXPECT_THAT(RefusedUnderRecovery(shrinks + "cluster { workers: 4 } communication { policy: "
                                             "ALL_TORUS grid: 2 grid: 2 }",
                                   Recovery::REPLACE),
              testing::StartsWith("communication.grid: it is for one number of workers"));
}

TEST(CombinationsTest, WorkersThatLeaveAreNotWaitedFor) {
  const std::string elastic = "elastic { max_workers: 4 }";
  for (const Recovery::Mode mode : {Recovery::NONE, Recovery::REPLACE}) {
    EXPECT_THAT(RefusedUnderRecovery(elastic, mode), HasSubstr("add recovery { mode: SHRINK }"));
  }
  EXPECT_EQ(RefusedUnderRecovery(elastic, Recovery::SHRINK), "");
}

TEST(CombinationsTest, CodecsThatSchemesCanUse) {
  for (const WireCodec codec : {FP32, FP16, BF16, ONE_BIT, TOP_K, INT8}) {
    EXPECT_THAT(WhyNotCodec(PS, codec), IsEmpty());
    EXPECT_EQ(WhyNotCodec(ADAM, codec).empty(), codec == FP32);
    const bool halves = codec == FP32 || codec == FP16 || codec == BF16;
    for (const Scheme scheme : {SFB, RING, HALVING_DOUBLING, TORUS}) {
      EXPECT_EQ(WhyNotCodec(scheme, codec).empty(), halves);
    }
  }
}

TEST(CombinationsTest, LocalStepsNeedExchangesOfTheirOwn) {
  for (const char* policy : {"ALL_PS", "ALL_RING", "ALL_HALVING_DOUBLING", "ALL_TORUS", "TIME"}) {
    EXPECT_EQ(Refused(std::string("local_steps: 10 policy: ") + policy), "");
  }
  EXPECT_EQ(Refused("local_steps: 10 fragments: 5 overlap_steps: 1 policy: ALL_PS codec: INT8"),
            "");
  for (const char* policy : {"BYTES", "ALL_SFB", "ALL_ADAM"}) {
    EXPECT_THAT(Refused(std::string("local_steps: 10 policy: ") + policy),
                HasSubstr("what many steps have changed has no factors"));
  }
  EXPECT_THAT(Refused("local_steps: 10 policy: ALL_PS staleness: 1"),
              HasSubstr("all workers go on from the same parameters"));
  EXPECT_THAT(Refused("local_steps: 10 policy: ALL_PS overlap: false"),
              HasSubstr("nothing is exchanged during a backward pass"));
  EXPECT_THAT(Refused("local_steps: 10 fragments: 2 bucket_bytes: 100 policy: ALL_PS"),
              HasSubstr("same one of the fragments"));
  Job job;
  ParseText("communication { local_steps: 10 policy: ALL_PS } cluster { devices_per_worker: 4 }",
            "job", job);
  ASSERT_EQ(Refusals(job).size(), 1u);
  EXPECT_EQ(Refusals(job)[0].field, "cluster.devices_per_worker");
  EXPECT_THAT(Refusals(job)[0].reason, HasSubstr("with a worker for each device"));
}

TEST(CombinationsTest, WhatALossScaleSavesIsNotPackedInItsRange) {
  const auto refused = [](const std::string& precision, const std::string& codec) {
    Job job;
    ParseText("training { device: CUDA precision: " + precision +
                  " } communication { codec: " + codec + " }",
              "job", job);
    const std::vector<Refusal> refusals = Refusals(job);
    return refusals.empty() ? "" : refusals[0].reason;
  };
  EXPECT_THAT(refused("FLOAT16", "FP16"), HasSubstr("communication.codec: FP16 has no place"));
  for (const std::string codec : {"FP32", "BF16", "INT8"}) {
    EXPECT_EQ(refused("FLOAT16", codec), "") << codec;
  }
  for (const std::string precision : {"FLOAT32", "BFLOAT16", "TF32"}) {
    EXPECT_EQ(refused(precision, "FP16"), "") << precision;
  }
}

TEST(CombinationsTest, LarsIsTheWorkersAndOfAllTheirGradients) {
  const auto refused = [](const std::string& communication) {
    Job job;
    ParseText("training { large_batch { lars {} } } communication { " + communication + " }", "job",
              job);
    const std::vector<Refusal> refusals = Refusals(job);
    return refusals.empty() ? "" : refusals[0].reason;
  };
  for (const std::string works : {"", "policy: ALL_PS", "update_at: WORKERS", "policy: ALL_ADAM"}) {
    EXPECT_EQ(refused(works), "") << works;
  }
  EXPECT_THAT(refused("policy: ALL_PS staleness: 1"),
              HasSubstr("communication.staleness: with training.large_batch.lars the workers"));
  EXPECT_THAT(refused("policy: ALL_PS update_at: SERVERS"),
              HasSubstr("leave lars out, or use WORKERS or AUTOMATIC"));
}

TEST(CombinationsTest, GridsAreAsSquareAsCanBe) {
  using testing::ElementsAre;
  EXPECT_THAT(SquareGrid(1), ElementsAre(1));
  EXPECT_THAT(SquareGrid(7), ElementsAre(7));
  EXPECT_THAT(SquareGrid(8), ElementsAre(2, 4));
  EXPECT_THAT(SquareGrid(36), ElementsAre(6, 6));
  EXPECT_THAT(SquareGrid(60), ElementsAre(6, 10));
}

}  // namespace
}  // namespace poseidon
