// What a scheduler writes down, what the next one makes of it, and who may have it.
#include "scheduler/journal/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <optional>

#include "core/error.h"
#include "scheduler/journal/journal_gate.h"
#include "scheduler/journal/journal_writer.h"
#include "tests/unit/temporary_directory.h"
#include "transport/membership/member.h"

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Record = wire::JournalRecord;
using Stage = JobState::Stage;

constexpr const char* kBuild = "1.2.0+aa";

wire::Node NodeOf(Role role, int rank) {
  wire::Node node;
  node.set_role(static_cast<uint32_t>(role));
  node.set_rank(rank);
  return node;
}

// Workers 0 and 1, as processes 10 and 11.
Record View() {
  Record record;
  for (const int rank : {0, 1}) {
    *record.mutable_view()->add_nodes() = NodeOf(Role::kWorker, rank);
    record.mutable_view()->add_incarnations(10 + static_cast<uint64_t>(rank));
  }
  return record;
}

Record Plan(int number) {
  Record record;
  record.mutable_plan()->mutable_plan()->set_number(number);
  return record;
}

Record Start() {
  Record record;
  record.mutable_start();
  return record;
}

Record Lost(int rank) {
  Record record;
  record.mutable_hold()->set_cause("cause " + std::to_string(rank));
  *record.mutable_hold()->add_lost() = NodeOf(Role::kWorker, rank);
  record.mutable_hold()->add_incarnations(10 + static_cast<uint64_t>(rank));
  return record;
}

Record Iteration(int64_t number) {
  Record record;
  record.mutable_iteration()->set_number(number);
  return record;
}

JobState StateAfter(const std::vector<Record>& records) {
  JobState state;
  for (const Record& record : records) state.Apply(record);
  return state;
}

TEST(JobStateTest, TheStageIsThatOfTheLastDecision) {
  EXPECT_EQ(StateAfter({}).stage, Stage::kGathering);
  EXPECT_EQ(StateAfter({View()}).stage, Stage::kDeclaring);
  EXPECT_EQ(StateAfter({View(), Plan(0)}).stage, Stage::kPreparing);
  EXPECT_EQ(StateAfter({View(), Plan(0), Start()}).stage, Stage::kTraining);
  Record pause;
  pause.mutable_pause();
  EXPECT_EQ(StateAfter({View(), Plan(0), Start(), pause}).stage, Stage::kPausing);
  EXPECT_EQ(StateAfter({View(), Plan(0), Start(), Lost(1)}).stage, Stage::kHolding);
  EXPECT_EQ(StateAfter({View(), Plan(0), Start(), Lost(1), View()}).stage, Stage::kHolding);
  EXPECT_EQ(StateAfter({View(), Lost(1), View()}).stage, Stage::kDeclaring);
  EXPECT_EQ(StateAfter({View(), Plan(0), Lost(1), View(), Plan(1)}).plan->plan().number(), 1);
}

TEST(JobStateTest, WhoIsLostIsNoMemberAndIsRemembered) {
  const JobState state = StateAfter({View(), Plan(0), Start(), Lost(1), Lost(0)});
  EXPECT_THAT(state.members, IsEmpty());
  EXPECT_THAT(state.gone, ElementsAre(10, 11));
  EXPECT_THAT(state.left, IsEmpty());
  ASSERT_TRUE(state.recovering);
  EXPECT_EQ(state.recovering->cause(), "cause 1");
  EXPECT_EQ(state.recovering->lost_size(), 2);
  EXPECT_TRUE(state.begun);
  EXPECT_FALSE(StateAfter({View(), Plan(0), Lost(1), View(), Plan(1)}).begun);
  const JobState next = StateAfter({View(), Plan(0), Start(), Lost(1), View(), Plan(1), Start()});
  EXPECT_FALSE(next.recovering);
  EXPECT_EQ(next.members.size(), 2u);
  EXPECT_EQ(next.losses_without_progress.at({Role::kWorker, 1}), 1);
}

// As in the scheduler itself: a worker that dies in the first iteration of each plan is given up
// whoever counts.
TEST(JobStateTest, LossesAreForgottenWhenTheJobHasComeOn) {
  Record plan = Plan(1);
  plan.mutable_plan()->mutable_plan()->set_start_iteration(7);
  std::vector<Record> records = {View(), Plan(0), Start(), Lost(1),     Iteration(7),
                                 View(), plan,    Start(), Iteration(7)};
  const NodeId lost{Role::kWorker, 1};
  EXPECT_EQ(StateAfter(records).losses_without_progress.at(lost), 1);
  const auto more = {Lost(1), Iteration(8), View(), plan, Start(), Iteration(7)};
  records.insert(records.end(), more);
  EXPECT_EQ(StateAfter(records).losses_without_progress.at(lost), 2);
  records.push_back(Iteration(8));
  EXPECT_THAT(StateAfter(records).losses_without_progress, IsEmpty());
}

TEST(JobStateTest, IterationsCountAsDoneUpToTheFirstThatIsMissing) {
  std::vector<Record> records = {View(), Plan(0), Start(), Lost(1), View(), Plan(1), Start()};
  for (const int64_t iteration : {0, 1, 3}) records.push_back(Iteration(iteration));
  JobState state = StateAfter(records);
  EXPECT_EQ(state.iterations_done, 2);
  EXPECT_EQ(state.reached, 4);
  EXPECT_THAT(state.losses_without_progress, IsEmpty());
  // They are done again.
  Record start;
  start.mutable_start()->mutable_recovered()->set_iteration(1);
  state.Apply(start);
  EXPECT_EQ(state.iterations_done, 1);
  EXPECT_EQ(state.reached, 1);
}

class JournalTest : public testing::Test {
 protected:
  // What opening the journal throws.
  std::string Refusal(const Journal::Owner& owner, ExitCode code) {
    try {
      Journal journal(path_, owner);
    } catch (const Error& error) {
      EXPECT_EQ(error.exit_code(), code) << error.what();
      return error.what();
    }
    return "nothing";
  }

  TemporaryDirectory directory_;
  const std::string path_ = directory_.Path("scheduler.journal");
  const Journal::Owner owner_{.base = 77, .fingerprint = 5, .job_name = "lenet", .build = kBuild};
};

TEST_F(JournalTest, TheNextSchedulerKnowsTheJob) {
  {
    Journal journal(path_, owner_);
    EXPECT_FALSE(journal.has_predecessor());
    EXPECT_EQ(journal.state().base, 77u);
    journal.Append(View());
    journal.Sync();
  }
  for (int term = 0; term < 3; ++term) {
    Journal journal(path_, {.base = 1000, .fingerprint = 5, .job_name = "lenet", .build = kBuild});
    EXPECT_EQ(journal.state().base, 77u) << "one job has one base";
    EXPECT_EQ(journal.state().term, term);
    EXPECT_EQ(journal.state().members.size(), 2u);
    for (const int expected : {3 + term, 0}) {  // the second time there is nothing any more
      int records = 0;
      journal.TakePast([&records](const Record&) { ++records; });
      EXPECT_EQ(records, expected);
    }
  }
}

TEST_F(JournalTest, AnotherJobsIsRefused) {
  { Journal journal(path_, owner_); }
  const auto of_job = [](const std::string& name) {
    return Journal::Owner{.base = 77, .fingerprint = 6, .job_name = name, .build = "1.2.0+bb"};
  };
  EXPECT_THAT(Refusal(of_job("vgg"), ExitCode::kConfigError),
              HasSubstr("scheduler.journal is of the job \"lenet\", which this config can't go on "
                        "with; take that job's config, remove the file to begin anew"));
  EXPECT_THAT(Refusal(of_job("lenet"), ExitCode::kConfigError),
              HasSubstr("is of a job of this name with another config"));
}

TEST_F(JournalTest, AnotherBuildsIsRefused) {
  { Journal journal(path_, owner_); }
  const auto size = std::filesystem::file_size(path_);
  Journal::Owner other = owner_;
  other.build = "1.2.0+bb";
  EXPECT_THAT(Refusal(other, ExitCode::kConfigError),
              HasSubstr("scheduler.journal is of a scheduler of build 1.2.0+aa, and this is build "
                        "1.2.0+bb; start that one to go on with the job, remove the file to begin "
                        "anew, or choose another --out"));
  EXPECT_EQ(std::filesystem::file_size(path_), size) << "it is no term of the job's";
  EXPECT_EQ(Journal(path_, owner_).state().term, 0);
  std::filesystem::remove(path_);
  other.build.clear();  // as before journals said it
  { Journal journal(path_, other); }
  EXPECT_THAT(Refusal(owner_, ExitCode::kConfigError),
              HasSubstr("is of a scheduler of an earlier build, and this is build 1.2.0+aa"));
}

// To Protobuf they are fields that it need not know, and the decision would be passed over.
TEST_F(JournalTest, RecordsOfAnotherVersionAreRefused) {
  Record with_more = Iteration(7);
  with_more.GetReflection()->MutableUnknownFields(&with_more)->AddVarint(999, 1);
  Record of_another_kind;
  of_another_kind.GetReflection()->MutableUnknownFields(&of_another_kind)->AddVarint(999, 1);
  for (const Record& record : {with_more, of_another_kind, Record()}) {
    std::filesystem::remove(path_);
    Journal(path_, owner_).Append(record);
    EXPECT_THAT(Refusal(owner_, ExitCode::kDataError),
                HasSubstr("has a record that this version of the program can't read; go on with "
                          "the version that wrote it"));
  }
}

TEST_F(JournalTest, ThereIsOneScheduler) {
  const Journal journal(path_, owner_);
  EXPECT_THAT(Refusal(owner_, ExitCode::kConfigError),
              HasSubstr("is in use by the scheduler of the job \"lenet\", process " +
                        std::to_string(getpid())));
}

// A file that must not grow stands for a full disk: a write is an error, once the signal is
// ignored.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes = 1) : signal_before_(signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &usual_), 0);
    rlimit full = usual_;
    full.rlim_cur = bytes;
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &usual_);
    signal(SIGXFSZ, signal_before_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit usual_{};
  void (*signal_before_)(int);
};

class JournalWriterTest : public JournalTest {
 protected:
  // The numbers of the iterations in the file, as the next scheduler finds them.
  std::vector<int64_t> Iterations() {
    journal_.reset();
    std::vector<int64_t> numbers;
    Journal(path_, owner_).TakePast([&numbers](const Record& record) {
      if (record.has_iteration()) numbers.push_back(record.iteration().number());
    });
    return numbers;
  }

  std::optional<Journal> journal_{std::in_place, path_, owner_};
  JournalWriter writer_{&*journal_};
};

TEST_F(JournalWriterTest, ADiskThatIsFullForAWhileLeavesNoGap) {
  writer_.Add(Iteration(0), std::nullopt);
  EXPECT_EQ(writer_.Write(Seconds(0)), std::nullopt);
  {
    const FullDisk full;
    // Nobody waits for these, for hours.
    for (int64_t number = 1; number < 10; ++number) {
      writer_.Add(Iteration(number), std::nullopt);
      EXPECT_EQ(writer_.Write(Seconds(3600.0 * static_cast<double>(number))), std::nullopt);
    }
    EXPECT_THAT(*writer_.TakeNews(),
                HasSubstr("scheduler.journal: File too large; what is to be written waits"));
    EXPECT_EQ(writer_.TakeNews(), std::nullopt);
    writer_.Add(Start(), 1);
    writer_.Add(Start(), 2);
    EXPECT_EQ(writer_.Write(Seconds(50'000)), std::nullopt) << "it is not written";
  }
  writer_.Add(Iteration(10), std::nullopt);
  EXPECT_EQ(writer_.Write(Seconds(50'000.5)), std::nullopt) << "it is tried every second";
  EXPECT_EQ(writer_.Write(Seconds(50'001)), 2) << "that stands for 1, too";
  EXPECT_EQ(writer_.TakeNews(), "the journal is written again, and lacks nothing");
  EXPECT_EQ(writer_.Write(Seconds(50'002)), std::nullopt) << "it has been answered";
  EXPECT_THAT(Iterations(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
}

TEST_F(JournalWriterTest, WhoWaitsIsAnsweredThoughWhatComesLaterHasNoRoom) {
  const auto size = [this] { return std::filesystem::file_size(path_); };
  const auto before = size();
  writer_.Add(Start(), 1);
  EXPECT_EQ(writer_.Write(Seconds(0)), 1);
  {
    const FullDisk full(2 * size() - before);  // for one more
    writer_.Add(Start(), 2);
    writer_.Add(Iteration(0), std::nullopt);
    EXPECT_EQ(writer_.Write(Seconds(1)), 2);
    EXPECT_EQ(writer_.Write(Seconds(1) + 2 * kJournalPatience), std::nullopt) << "nobody waits";
  }
  EXPECT_EQ(writer_.Write(Seconds(2) + 3 * kJournalPatience), std::nullopt);
  EXPECT_THAT(Iterations(), ElementsAre(0));
}

// Or it would be said that the scheduler is gone.
TEST(JournalPatienceTest, IsLessThanNodesHave) {
  Job job;
  EXPECT_EQ(JournalPatience(job), Seconds(45));  // of the 60 within which nodes have to join
  job.mutable_communication()->set_stall_deadline_seconds(8);
  EXPECT_EQ(JournalPatience(job), Seconds(6));
  job.mutable_communication()->set_stall_deadline_seconds(1000);
  job.mutable_cluster()->set_join_deadline_seconds(1000);
  job.mutable_recovery()->set_scheduler_deadline_seconds(1000);
  job.mutable_recovery()->set_replacement_deadline_seconds(1000);
  EXPECT_EQ(JournalPatience(job), kJournalPatience);
}

TEST_F(JournalWriterTest, WhoWaitsForARecordWaitsNotForever) {
  const FullDisk full;
  writer_.Add(Iteration(0), std::nullopt);
  EXPECT_EQ(writer_.Write(Seconds(0)), std::nullopt);
  const Time asked = Seconds(1000);
  writer_.Add(Start(), 1);
  EXPECT_EQ(writer_.Write(asked), std::nullopt);
  EXPECT_EQ(writer_.Write(asked + kJournalPatience - Seconds(1)), std::nullopt);
  const std::string why = MessageOf<Error>([&] { writer_.Write(asked + kJournalPatience); });
  EXPECT_THAT(why, HasSubstr("can't write to " + path_ + ": File too large"));
  EXPECT_EQ(writer_.Write(asked + kJournalPatience), 1) << "the job has to end, and can";
  writer_.Add(Start(), 2);
  EXPECT_EQ(writer_.Write(asked + kJournalPatience), 2);
}

TEST_F(JournalWriterTest, NobodyWaitsForTheEndToBeWritten) {
  const FullDisk full;
  writer_.Add(Iteration(0), std::nullopt);
  EXPECT_EQ(writer_.Write(Seconds(0)), std::nullopt);
  Record end;
  end.mutable_end();
  writer_.Add(end, 1);
  EXPECT_EQ(writer_.Write(Seconds(0.1)), 1);
  EXPECT_THAT(*writer_.TakeNews(), HasSubstr("it does not tell that the job has ended"));
}

// Sends a record between two others for each message, and one other for each timer. Timers are set
// again.
class Decider : public Actor {
 public:
  void OnMessage(const Envelope& envelope, Outbox& outbox) override {
    Send(MessageKind::kNotice, outbox);
    outbox.Send(MakeEnvelope(MessageKind::kJournal, Here(kApplicationLane), Start()));
    Send(envelope.kind, outbox);
  }
  void OnTimer(TimerId timer, Outbox& outbox) override {
    outbox.SetTimer(timer, Seconds(1));
    Send(MessageKind::kHold, outbox);
  }

 private:
  static void Send(MessageKind kind, Outbox& outbox) {
    Envelope envelope;
    envelope.kind = kind;
    outbox.Send(std::move(envelope));
  }
};

std::vector<MessageKind> KindsOf(Outbox& outbox) {
  std::vector<MessageKind> kinds;
  for (const Envelope& envelope : outbox.messages) kinds.push_back(envelope.kind);
  outbox.Clear();
  return kinds;
}

Envelope OfKind(MessageKind kind, int64_t iteration = 0) {
  Envelope envelope;
  envelope.kind = kind;
  envelope.iteration = iteration;
  return envelope;
}

TEST(JournalGateTest, NothingLeavesBeforeWhatIsWritten) {
  JournalGate gate(std::make_unique<Decider>());
  Outbox outbox;
  using Kind = MessageKind;
  gate.OnMessage(OfKind(Kind::kView), outbox);
  EXPECT_EQ(outbox.messages.back().iteration, 1);
  EXPECT_THAT(KindsOf(outbox), ElementsAre(Kind::kNotice, Kind::kJournal));
  gate.OnTimer(1, outbox);
  EXPECT_THAT(KindsOf(outbox), IsEmpty());
  gate.OnMessage(OfKind(Kind::kPlan), outbox);
  EXPECT_THAT(KindsOf(outbox), ElementsAre(Kind::kJournal));
  gate.OnMessage(OfKind(Kind::kJournaled, 1), outbox);
  EXPECT_THAT(KindsOf(outbox), ElementsAre(Kind::kView, Kind::kHold, Kind::kNotice));
  gate.OnMessage(OfKind(Kind::kJournaled, 2), outbox);
  EXPECT_THAT(KindsOf(outbox), ElementsAre(Kind::kPlan));
  gate.OnTimer(1, outbox);
  EXPECT_THAT(KindsOf(outbox), ElementsAre(Kind::kHold));
}

// Writes down what it asks another node, whom it watches, and gives it a second.
class Asker : public Actor {
 public:
  void OnMessage(const Envelope& envelope, Outbox& outbox) override {
    (void)envelope;
    outbox.Send(OfKind(MessageKind::kJournal));
    outbox.Send(OfKind(MessageKind::kHold));
    outbox.Attach(kHeartbeatLane, std::make_unique<Decider>());
    outbox.SetTimer(1, Seconds(1));
  }
};

TEST(JournalGateTest, NobodyIsLateWithAnAnswerBeforeTheQuestionHasLeft) {
  JournalGate gate(std::make_unique<Asker>());
  Outbox outbox;
  gate.OnMessage(OfKind(MessageKind::kPeerSilent), outbox);
  EXPECT_TRUE(outbox.attachments.empty());
  ASSERT_EQ(outbox.timers.size(), 2u);  // the second is the gate's own
  EXPECT_FALSE(outbox.timers[0].delay) << "of an earlier question";
  outbox.Clear();
  gate.OnMessage(OfKind(MessageKind::kJournaled, 1), outbox);
  ASSERT_EQ(outbox.attachments.size(), 1u);
  EXPECT_EQ(outbox.attachments[0].lane, kHeartbeatLane);
  ASSERT_EQ(outbox.timers.size(), 1u);
  EXPECT_EQ(outbox.timers[0].id, 1);
  EXPECT_EQ(outbox.timers[0].delay, Seconds(1));
  EXPECT_THAT(KindsOf(outbox), ElementsAre(MessageKind::kHold));
}

// As where a second node is lost before the first loss is written down: nobody answers the first
// question any more.
TEST(JournalGateTest, ADeadlineIsTheLastQuestions) {
  JournalGate gate(std::make_unique<Asker>());
  Outbox outbox;
  for (int loss = 0; loss < 2; ++loss) {
    gate.OnMessage(OfKind(MessageKind::kPeerSilent), outbox);
    outbox.Clear();
  }
  gate.OnMessage(OfKind(MessageKind::kJournaled, 1), outbox);
  ASSERT_EQ(outbox.timers.size(), 1u);
  EXPECT_NE(outbox.timers[0].id, 1) << "the gate's own";
  EXPECT_THAT(KindsOf(outbox), ElementsAre(MessageKind::kHold));
  gate.OnMessage(OfKind(MessageKind::kJournaled, 2), outbox);
  ASSERT_EQ(outbox.timers.size(), 1u);
  EXPECT_EQ(outbox.timers[0].delay, Seconds(1));
}

// Answers whoever asks, all under one address; the first question is one to write down.
class Answerer : public Actor {
 public:
  void OnMessage(const Envelope& envelope, Outbox& outbox) override {
    const Address guest{{Role::kWorker, -1}, kControlLane};
    outbox.routes.push_back({.to = guest, .endpoint = std::to_string(envelope.iteration)});
    if (envelope.iteration == 1) {
      outbox.Send(OfKind(MessageKind::kJournal));
    }
    Envelope answer;
    answer.kind = MessageKind::kLeave;
    answer.to = guest;
    answer.iteration = envelope.iteration;
    outbox.Send(std::move(answer));
  }
};

TEST(JournalGateTest, WhatIsHeldGoesToWhomItWasFor) {
  JournalGate gate(std::make_unique<Answerer>());
  std::string endpoint;
  std::vector<std::string> answered;
  // Each call has an outbox of its own, as in the runtimes. Whether there is more to release.
  const auto carry_out = [&](const std::function<void(Outbox&)>& call) {
    Outbox outbox;
    call(outbox);
    for (const Outbox::Route& route : outbox.routes) endpoint = route.endpoint;
    for (const Envelope& envelope : outbox.messages) {
      if (envelope.kind != MessageKind::kLeave) continue;
      answered.push_back(std::to_string(envelope.iteration) + " to " + endpoint);
    }
    return !outbox.timers.empty() && outbox.timers.back().id == 1000;
  };
  const auto ask = [&](int64_t question) {
    return carry_out(
        [&](Outbox& outbox) { gate.OnMessage(OfKind(MessageKind::kLeave, question), outbox); });
  };
  for (const int64_t question : {1, 2, 3}) EXPECT_FALSE(ask(question));
  EXPECT_THAT(answered, IsEmpty());
  EXPECT_TRUE(carry_out(
      [&](Outbox& outbox) { gate.OnMessage(OfKind(MessageKind::kJournaled, 1), outbox); }));
  EXPECT_FALSE(ask(4));  // before all that was held has left
  // The timer is the gate's own, as the actor sets none.
  while (carry_out([&](Outbox& outbox) { gate.OnTimer(1000, outbox); })) {
  }
  EXPECT_THAT(answered, ElementsAre("1 to 1", "2 to 2", "3 to 3", "4 to 4"));
}

}  // namespace
}  // namespace poseidon
