// A scheduler of a job of two workers, whose nodes' part a test takes.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
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

inline constexpr NodeId kServer{Role::kServer, 0};
inline constexpr NodeId kWorkers[] = {{Role::kWorker, 0}, {Role::kWorker, 1}};
inline constexpr double kStall = 300;  // seconds
inline constexpr TimerId kPhaseDeadline = 1;
inline constexpr TimerId kStallsCollected = 3;
inline constexpr TimerId kLookForProgress = 6;

inline SchedulerOptions TwoWorkers(Recovery::Mode mode) {
  SchedulerOptions options;
  options.job.mutable_cluster()->set_workers(2);
  options.job.mutable_cluster()->set_servers(1);
  options.job.mutable_cluster()->set_join_deadline_seconds(60);
  options.job.mutable_communication()->set_stall_deadline_seconds(kStall);
  options.job.mutable_recovery()->set_mode(mode);
  return options;
}

// It recovers.
class SchedulerTest : public testing::Test {
 protected:
  explicit SchedulerTest(SchedulerOptions options = TwoWorkers(Recovery::REPLACE))
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
                const std::string& host = "node", const std::string& build = "") {
    wire::Register request;
    request.mutable_node()->set_role(static_cast<uint32_t>(node.role));
    request.mutable_node()->set_rank(node.rank);
    request.mutable_node()->set_host(host);
    for (int lane = 0; lane < kFirstDataLane + lanes; ++lane) {
      request.mutable_node()->add_endpoints("somewhere");
    }
    request.set_incarnation(incarnation);
    request.set_build(build);
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
    for (const NodeId& worker : kWorkers) Declare(worker, 0);
  }
  // The worker has what training goes on from at this iteration.
  void Declare(const NodeId& worker, int64_t first_iteration) {
    ModelSpec model;
    model.set_iterations(10);
    model.set_batch(1);
    model.mutable_update_rule()->set_type("SGD");
    model.mutable_update_rule()->set_lr_policy("fixed");
    model.mutable_update_rule()->set_base_lr(0.1F);
    LayerSpec& layer = *model.add_layers();
    layer.set_name("a");
    layer.add_blobs()->add_shape(100);
    wire::Declaration declaration;
    declaration.set_model(model.SerializeAsString());
    declaration.mutable_inputs()->set_first_iteration(first_iteration);
    Tell(worker, MessageKind::kDeclareModel, declaration);
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
    Hold(worker, holdings);
  }
  void Hold(const NodeId& worker, const wire::Holdings& holdings) {
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

}  // namespace poseidon
