// What the scheduler does when a node of a job under way is lost, or it is itself, and how long it
// waits.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "planner/job_plan.h"
#include "scheduler/journal/job_state.h"
#include "scheduler/scheduler_actor.h"
#include "transport/membership/heartbeat.h"
#include "transport/membership/member.h"

namespace poseidon {
namespace {

constexpr NodeId kServer{Role::kServer, 0};
constexpr NodeId kWorkers[] = {{Role::kWorker, 0}, {Role::kWorker, 1}};
constexpr double kStall = 300;  // seconds
constexpr TimerId kPhaseDeadline = 1;

SchedulerOptions TwoWorkers(Recovery::Mode mode) {
  SchedulerOptions options;
  options.job.mutable_cluster()->set_workers(2);
  options.job.mutable_cluster()->set_servers(1);
  options.job.mutable_cluster()->set_join_deadline_seconds(60);
  options.job.mutable_communication()->set_stall_deadline_seconds(kStall);
  options.job.mutable_recovery()->set_mode(mode);
  return options;
}

// A job of two workers that recovers, whose nodes' part is the test's.
class SchedulerDeadlinesTest : public testing::Test {
 protected:
  explicit SchedulerDeadlinesTest(SchedulerOptions options = TwoWorkers(Recovery::REPLACE))
      : options_(std::move(options)) {
    journal_.base = options_.epoch;
    outbox_.now = Time(Seconds(1));
    StartScheduler();
  }

  // Another one goes on with what those before it have written down.
  void StartScheduler() {
    options_.journal = journal_;
    ++journal_.term;
    // Without the gate: all is written at once.
    scheduler_ = std::make_unique<SchedulerActor>(options_);
    outbox_.Clear();
    scheduler_->OnStart(outbox_);
    TakeSent();
  }

  void Send(Envelope envelope) {
    outbox_.Clear();
    scheduler_->OnMessage(envelope, outbox_);
    TakeSent();
  }

  void TakeSent() {
    for (const Envelope& sent : outbox_.messages) {
      bool parsed = true;
      const auto parse = [&](auto& message) {
        parsed = message.ParseFromString(sent.body.ToString());
      };
      if (sent.kind == MessageKind::kView && sent.epoch != 0) parse(view_);
      if (sent.kind == MessageKind::kPlan) parse(plan_);
      if (sent.kind == MessageKind::kEnd && sent.to.node == kServer) parse(end_.emplace());
      if (sent.kind == MessageKind::kHold) hold_ = sent.step;
      if (sent.kind == MessageKind::kJournal) {
        wire::JournalRecord record;
        parse(record);
        journal_.Apply(record);
      }
      EXPECT_TRUE(parsed);
    }
  }

  void TearDown() override {
    if (end_) ADD_FAILURE() << "the job has ended: " << end_->reason();
  }

  // "3 its reason", of a job that has ended as it should.
  std::string TakeEnd() {
    if (!end_) return "it has not ended";
    const wire::End end = *std::exchange(end_, std::nullopt);
    return std::to_string(end.exit_code()) + " " + end.reason();
  }

  // Whether the last message to the scheduler, or its start, had it send one of this kind.
  bool HasSent(MessageKind kind) const {
    return std::ranges::any_of(outbox_.messages,
                               [kind](const Envelope& sent) { return sent.kind == kind; });
  }

  // What people are told, in the same answer.
  std::string Notices() const {
    std::string texts;
    for (const Envelope& sent : outbox_.messages) {
      wire::Notice notice;
      if (sent.kind != MessageKind::kNotice) continue;
      EXPECT_TRUE(notice.ParseFromString(sent.body.ToString()));
      texts += notice.text() + "\n";
    }
    return texts;
  }

  void SendAs(const NodeId& node, Envelope envelope) {
    envelope.from = {node, kControlLane};
    envelope.epoch = view_.epoch();
    Send(std::move(envelope));
  }

  template <typename Message>
  void Tell(const NodeId& node, MessageKind kind, const Message& message) {
    SendAs(node, MakeEnvelope(kind, {{Role::kScheduler, 0}, kControlLane}, message));
  }

  void Register(const NodeId& node, uint64_t incarnation, int lanes = 1,
                const std::string& host = "node") {
    wire::Register request;
    request.mutable_node()->set_role(static_cast<uint32_t>(node.role));
    request.mutable_node()->set_rank(node.rank);
    request.mutable_node()->set_host(host);
    for (int lane = 0; lane < kFirstDataLane + lanes; ++lane) {
      request.mutable_node()->add_endpoints("somewhere");
    }
    request.set_incarnation(incarnation);
    Send(MakeEnvelope(MessageKind::kRegister, Here(kControlLane), request));
  }

  // All of the view, to train by the last plan.
  void SayReady() {
    const wire::View view = view_;
    for (const wire::Node& node : view.nodes()) {
      Envelope ready;
      ready.kind = MessageKind::kReady;
      ready.step = static_cast<uint32_t>(plan_.plan().number());
      SendAs(IdOf(node), ready);
    }
  }

  void RegisterAll(int lanes = 1) {
    Register(kServer, 1, lanes);
    for (const NodeId& worker : kWorkers) {
      Register(worker, 2 + static_cast<uint64_t>(worker.rank), lanes);
    }
  }

  void DeclareModel() {
    ModelSpec model;
    model.set_iterations(10);
    model.set_batch(1);
    model.mutable_update_rule()->set_type("SGD");
    model.mutable_update_rule()->set_lr_policy("fixed");
    model.mutable_update_rule()->set_base_lr(0.1F);
    LayerSpec& layer = *model.add_layers();
    layer.set_name("a");
    layer.add_blobs()->add_shape(100);
    for (const NodeId& worker : kWorkers) {
      wire::Declaration declaration;
      declaration.set_model(model.SerializeAsString());
      Tell(worker, MessageKind::kDeclareModel, declaration);
    }
  }

  void BeginTraining() {
    RegisterAll();
    DeclareModel();
    SayReady();
  }

  // What the scheduler's program, or a worker's, asks for by a message of this kind.
  void Ask(MessageKind kind) {
    Envelope envelope;
    envelope.kind = kind;
    Send(std::move(envelope));
  }
  // The worker can pause before that iteration.
  void Offer(const NodeId& worker, int64_t iteration) {
    Envelope offer;
    offer.kind = MessageKind::kPauseOffer;
    offer.iteration = iteration;
    SendAs(worker, std::move(offer));
  }
  // Of the last that was sent of the kind.
  std::optional<int64_t> SentIteration(MessageKind kind) const {
    std::optional<int64_t> iteration;
    for (const Envelope& sent : outbox_.messages) {
      if (sent.kind == kind) iteration = sent.iteration;
    }
    return iteration;
  }
  void AskToLeave(const NodeId& worker) {
    Envelope leave;
    leave.kind = MessageKind::kLeave;
    SendAs(worker, std::move(leave));
  }

  void FallSilent(const NodeId& node) { FallSilent(node, view_.epoch()); }
  void FallSilent(const NodeId& node, uint64_t epoch) {
    wire::Silent silent;
    silent.add_nodes()->set_role(static_cast<uint32_t>(node.role));
    silent.mutable_nodes(0)->set_rank(node.rank);
    silent.add_silent_seconds(10);
    Envelope report = MakeEnvelope(MessageKind::kPeerSilent, Here(kControlLane), silent);
    report.epoch = epoch;
    Send(std::move(report));
  }

  // The worker has stopped the exchange, and has the values of this iteration.
  void Hold(const NodeId& worker, int64_t iteration) {
    wire::Holdings holdings;
    holdings.set_complete(true);
    holdings.set_layout(plan_.plan().layout());
    holdings.set_iteration(iteration);
    Envelope held =
        MakeEnvelope(MessageKind::kHoldings, {{Role::kScheduler, 0}, kControlLane}, holdings);
    held.step = hold_;
    SendAs(worker, held);
  }
  void Hold() { Hold(kWorkers[0], plan_.plan().start_iteration()); }

  std::optional<double> deadline() const {
    std::optional<double> seconds;
    for (const Outbox::Timer& timer : outbox_.timers) {
      if (timer.id == 1 && timer.delay) seconds = ToSeconds(*timer.delay);
    }
    return seconds;
  }

  SchedulerOptions options_;
  std::unique_ptr<Actor> scheduler_;
  Outbox outbox_;
  JobState journal_;
  wire::View view_;
  wire::PlanAndModel plan_;
  std::optional<wire::End> end_;
  uint32_t hold_ = 0;
};

// Worker 0 may be in the midst of a test phase, which the stall deadline alone is to cover.
TEST_F(SchedulerDeadlinesTest, AProgramThatTestsHasAsLongAsATestMayTake) {
  BeginTraining();
  const int plan = plan_.plan().number();
  FallSilent(kWorkers[1]);
  Hold();
  Register(kWorkers[1], 10);
  ASSERT_EQ(plan_.plan().number(), plan + 1);
  EXPECT_EQ(deadline(), kStall);
}

// A lane answers a hold at once, but not while its program loads what a plan starts with.
TEST_F(SchedulerDeadlinesTest, AHoldAmongProgramsThatLoadWaitsForThem) {
  BeginTraining();
  FallSilent(kWorkers[1]);
  ASSERT_TRUE(deadline());
  EXPECT_LT(*deadline(), 60);
  Hold();
  Register(kWorkers[1], 10);
  FallSilent(kWorkers[1]);
  EXPECT_EQ(deadline(), kStall);
}

// Its report may be on its way when another process takes the rank.
TEST_F(SchedulerDeadlinesTest, TheMonitorOfAnEarlierViewLosesNobody) {
  BeginTraining();
  const uint64_t earlier = view_.epoch();
  FallSilent(kWorkers[1]);
  Hold();
  Register(kWorkers[1], 10);
  ASSERT_NE(view_.epoch(), earlier);
  FallSilent(kWorkers[1], earlier);
  EXPECT_TRUE(outbox_.messages.empty());
  FallSilent(kWorkers[1]);
  EXPECT_FALSE(outbox_.messages.empty());
}

// The snapshot of the stop's iteration can be written when all have gone back.
TEST_F(SchedulerDeadlinesTest, AStopInARecoveryIsForWhenTheJobGoesOn) {
  BeginTraining();
  FallSilent(kWorkers[1]);
  Ask(MessageKind::kStopTraining);
  Hold();
  Ask(MessageKind::kStopTraining);
  Register(kWorkers[1], 10);
  SayReady();
  EXPECT_TRUE(HasSent(MessageKind::kStart));
  EXPECT_TRUE(HasSent(MessageKind::kPauseRequest));
}

// The answer was lost with the worker's connection, and the worker says its offer again.
TEST_F(SchedulerDeadlinesTest, AnOfferThatIsMadeAgainIsAnsweredAgain) {
  BeginTraining();
  Send(MakeEnvelope(MessageKind::kSwitchPlan, Here(kControlLane), plan_));
  Offer(kWorkers[0], 4);
  Offer(kWorkers[0], 4);
  EXPECT_FALSE(SentIteration(MessageKind::kPauseAt)) << "the other one has not offered";
  Offer(kWorkers[1], 3);
  ASSERT_EQ(SentIteration(MessageKind::kPauseAt), 4);
  Offer(kWorkers[1], 3);
  EXPECT_EQ(SentIteration(MessageKind::kPauseAt), 4);
  EXPECT_EQ(outbox_.messages.size(), 1u) << "the other one knows";
}

TEST_F(SchedulerDeadlinesTest, WhoOffersAgainIsToldAgainWhereTheJobStops) {
  BeginTraining();
  Ask(MessageKind::kStopTraining);
  for (const NodeId& worker : kWorkers) Offer(worker, 3);
  Offer(kWorkers[0], 3);
  ASSERT_EQ(outbox_.messages.size(), 1u);
  EXPECT_EQ(outbox_.messages[0].iteration, 3);
  EXPECT_EQ(outbox_.messages[0].step, kStopThere);
}

// As another scheduler's launcher does, which does not know whether the signal has come.
TEST_F(SchedulerDeadlinesTest, AStopThatIsAskedForAgainIsBeforeTheSameIteration) {
  BeginTraining();
  Ask(MessageKind::kStopTraining);
  for (const NodeId& worker : kWorkers) Offer(worker, 3);
  EXPECT_EQ(SentIteration(MessageKind::kPauseAt), 3);
  Ask(MessageKind::kStopTraining);
  EXPECT_FALSE(HasSent(MessageKind::kPauseRequest)) << "some have stopped there";
  EXPECT_EQ(SentIteration(MessageKind::kPauseAt), 3);
  EXPECT_EQ(journal_.stage, JobState::Stage::kPausing);
  // All go back, and agree anew.
  FallSilent(kWorkers[1]);
  Hold();
  Register(kWorkers[1], 10);
  SayReady();
  EXPECT_TRUE(HasSent(MessageKind::kPauseRequest));
}

TEST_F(SchedulerDeadlinesTest, ASnapshotIsWrittenByWhoeverIsTheFirstWhenTrainingGoesOn) {
  BeginTraining();
  FallSilent(kWorkers[0]);
  Ask(MessageKind::kAskSnapshot);
  EXPECT_FALSE(HasSent(MessageKind::kWriteSnapshot));
  Hold(kWorkers[1], plan_.plan().start_iteration());
  Register(kWorkers[0], 10);
  SayReady();
  EXPECT_TRUE(HasSent(MessageKind::kWriteSnapshot));
}

TEST_F(SchedulerDeadlinesTest, ASnapshotIsAskedForAgainUntilItMustHaveBeenWritten) {
  BeginTraining();
  Ask(MessageKind::kAskSnapshot);
  EXPECT_TRUE(HasSent(MessageKind::kWriteSnapshot));
  uint64_t incarnation = 10;
  const auto is_asked_again = [&] {
    FallSilent(kWorkers[0]);
    Hold(kWorkers[1], plan_.plan().start_iteration());
    Register(kWorkers[0], incarnation++);
    SayReady();
    return HasSent(MessageKind::kWriteSnapshot);
  };
  const auto report = [&](const NodeId& worker, int64_t iteration) {
    wire::Progress progress;
    progress.set_iteration(iteration);
    Tell(worker, MessageKind::kProgress, progress);
  };
  report(kWorkers[0], 0);
  report(kWorkers[0], 1);
  EXPECT_TRUE(is_asked_again());
  report(kWorkers[1], 4);  // who does not write it
  EXPECT_TRUE(is_asked_again());
  for (int64_t iteration = 2; iteration < 8; ++iteration) report(kWorkers[0], iteration);
  EXPECT_FALSE(is_asked_again());
}

TEST_F(SchedulerDeadlinesTest, AStoppedJobWhosePlaceNobodyTakesIsInterrupted) {
  BeginTraining();
  FallSilent(kWorkers[1]);
  Hold();
  Ask(MessageKind::kStopTraining);
  outbox_.Clear();
  scheduler_->OnTimer(kPhaseDeadline, outbox_);
  TakeSent();
  EXPECT_THAT(TakeEnd(), testing::StartsWith("130 a signal stopped it; lost worker 1"));
}

// Such a machine's nodes find the scheduler, and all seems well until others look for them.
TEST_F(SchedulerDeadlinesTest, NodesThatOthersDoNotReachAreNamedAtTheStartAndInTheEnd) {
  options_ = TwoWorkers(Recovery::NONE);
  StartScheduler();
  Register(kServer, 1, 1, "127.0.0.1");
  Register(kWorkers[0], 2, 1, "127.0.0.1");
  EXPECT_EQ(Notices(), "");
  Register(kWorkers[1], 3);
  const std::string named =
      "nodes on other machines do not reach server 0 (127.0.0.1, process 0), worker 0";
  EXPECT_THAT(Notices(), testing::StartsWith(named));
  DeclareModel();
  outbox_.Clear();
  scheduler_->OnTimer(kPhaseDeadline, outbox_);
  TakeSent();
  EXPECT_THAT(TakeEnd(), testing::AllOf(testing::StartsWith("4 server 0"),
                                        testing::HasSubstr("did not get ready to train"),
                                        testing::HasSubstr(named)));
}

// Between its plan and the start of that the next scheduler is lost, too.
TEST_F(SchedulerDeadlinesTest, GoingBackFromAPauseIsWrittenDown) {
  BeginTraining();
  for (const int64_t iteration : {0, 1, 2, 3}) {
    wire::JournalRecord record;
    record.mutable_iteration()->set_number(iteration);
    journal_.Apply(record);
  }
  Send(MakeEnvelope(MessageKind::kSwitchPlan, Here(kControlLane), plan_));
  ASSERT_TRUE(HasSent(MessageKind::kPauseRequest));
  StartScheduler();
  for (const NodeId& worker : kWorkers) Hold(worker, 2);
  ASSERT_EQ(plan_.plan().start_iteration(), 2);
  StartScheduler();
  SayReady();
  EXPECT_EQ(journal_.iterations_done, 2) << "the others are done again";
  EXPECT_TRUE(HasSent(MessageKind::kRecovered));
}

// A job whose plan says how many lanes there are.
class SpareLanesTest : public SchedulerDeadlinesTest {
 protected:
  SpareLanesTest() : SchedulerDeadlinesTest(Options()) {}

  static SchedulerOptions Options() {
    SchedulerOptions options = TwoWorkers(Recovery::REPLACE);
    options.job.mutable_recovery()->set_spare_workers(2);
    options.job.mutable_cluster()->mutable_network();
    options.planner = [](const InformationBook& book, const Job& job) {
      Plan plan = PlanJob(book, job);
      plan.set_lanes(2);
      return plan;
    };
    return options;
  }
};

TEST_F(SpareLanesTest, ASpareOfTooFewLanesDoesNotTakeThePlace) {
  RegisterAll(2);
  constexpr NodeId kAny{Role::kWorker, -1};
  Register(kAny, 10, 1);
  Register(kAny, 11, 2);
  DeclareModel();
  FallSilent(kWorkers[1]);
  Hold();
  EXPECT_TRUE(HasSent(MessageKind::kRefused));
  EXPECT_EQ(journal_.members.at(kWorkers[1]).incarnation, 11u);
}

class ElasticSchedulerTest : public SchedulerDeadlinesTest {
 protected:
  ElasticSchedulerTest() : SchedulerDeadlinesTest(Options()) {}

  static SchedulerOptions Options() {
    SchedulerOptions options = TwoWorkers(Recovery::SHRINK);
    options.job.mutable_elastic()->set_min_workers(1);
    return options;
  }

  // As `poseidon run` tells of it.
  void LoseProcess(const NodeId& node) {
    wire::LostProcess lost;
    lost.set_role(static_cast<uint32_t>(node.role));
    lost.set_rank(node.rank);
    lost.set_cause("was killed by signal 9");
    Send(MakeEnvelope(MessageKind::kLostProcess, Here(kControlLane), lost));
  }
};

// As by a second SIGTERM: the job does not end with it.
TEST_F(ElasticSchedulerTest, ALeaverThatCanNotWaitIsLost) {
  BeginTraining();
  AskToLeave(kWorkers[1]);
  Tell(kWorkers[1], MessageKind::kFailed, MakeEnd(ExitCode::kInterrupted, "interrupted"));
  EXPECT_TRUE(HasSent(MessageKind::kHold));
}

// It is the only one that has the parameters.
TEST_F(ElasticSchedulerTest, ALeaverStaysWhereALossHasLeftTooFew) {
  BeginTraining();
  AskToLeave(kWorkers[0]);
  EXPECT_THAT(journal_.leaving, testing::ElementsAre(kWorkers[0]));
  FallSilent(kWorkers[1]);
  Hold();
  SayReady();
  EXPECT_TRUE(HasSent(MessageKind::kStart));
  EXPECT_FALSE(HasSent(MessageKind::kPauseRequest));
  EXPECT_THAT(Notices(),
              testing::HasSubstr("stays: without it 0 worker(s) would be left, and the job wants 1 "
                                 "(elastic.min_workers)"));
  EXPECT_THAT(journal_.leaving, testing::IsEmpty());
}

// Nobody starts another process of a job that has nothing to go on from.
TEST_F(ElasticSchedulerTest, AProcessLostBeforeTrainingEndsTheJobUnderTheNextSchedulerToo) {
  RegisterAll();
  StartScheduler();
  LoseProcess(kWorkers[1]);
  EXPECT_THAT(TakeEnd(), testing::StartsWith("3 lost worker 1"));
}

}  // namespace
}  // namespace poseidon
