#include "scheduler/scheduler_actor.h"

#include <glog/logging.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "core/error.h"
#include "core/net/host_address.h"
#include "planner/cost/information_book.h"
#include "planner/job_plan.h"
#include "proto/job_config.h"
#include "proto/lanes.h"
#include "proto/plan_members.h"
#include "proto/update_rule_message.h"
#include "scheduler/agreement/input_agreement.h"
#include "scheduler/agreement/model_difference.h"
#include "scheduler/journal/journal_gate.h"
#include "scheduler/link_reports.h"
#include "scheduler/report/parameter_agreement.h"
#include "transport/membership/member.h"
#include "transport/membership/node_setup.h"

namespace poseidon {
namespace {

// After the last iteration servers bring workers that run apart together again. Until then their
// iterations differ, and so do the numbers that they may send along.
void CheckStaleness(const ModelSpec& model, const Communication& communication) {
  if (communication.staleness() == 0) return;
  if (IsTorchType(model.update_rule().type())) {
    throw ConfigError(
        "communication.staleness must be 0: the servers update by the numbers of the workers' "
        "optimizers, which must be those of one iteration");
  }
  if (model.iterations() > 0) return;
  throw ConfigError(
      "communication.staleness must be 0: the training program has not said how many iterations it "
      "will do (Model::iterations), so that its workers would end with different parameters");
}

// After which a training in which no worker tells of anything is told of. Whoever waits for another
// has had that reported by then: after one and a half deadlines where it is for servers only
// (client/sync/sync_lane.cc), and two tenths later. With local steps an exchange's deadline is that
// of a fragment, and a round, in which all have one, is what workers tell of.
Duration QuietPatience(const Job& job) {
  constexpr double kDeadlines = 2;
  constexpr double kMost = 1e8;  // as of StallDeadline
  return Seconds(std::min(kMost, kDeadlines * job.communication().fragments() *
                                     ToSeconds(poseidon::StallDeadline(job))));
}

}  // namespace

std::string SchedulerActor::SecondsText(Duration duration) {
  return std::to_string(static_cast<int64_t>(ToSeconds(duration))) + " s";
}

SchedulerActor::SchedulerActor(SchedulerOptions options)
    : options_(std::move(options)),
      timing_(TimingOf(options_.job)),
      roster_(
          options_.job, options_.job_fingerprint, options_.build,
          kFirstDataLane + (PlansLanes(options_.job) ? 1 : options_.job.communication().lanes())),
      spares_(options_.job.recovery()),
      quiet_(QuietPatience(options_.job)) {
  if (options_.journal && options_.journal->term >= 0) options_.epoch = options_.journal->base;
}

std::unique_ptr<Actor> MakeScheduler(SchedulerOptions options) {
  const bool journals = options.journal.has_value();
  const Duration patience = HangingJournalPatience(options.job);
  auto scheduler = std::make_unique<SchedulerActor>(std::move(options));
  if (!journals) return scheduler;
  return std::make_unique<JournalGate>(std::move(scheduler), patience);
}

void SchedulerActor::OnStart(Outbox& outbox) {
  if (options_.journal && options_.journal->term >= 0) return TakeOver(outbox);
  EnterPhase(Phase::kGathering, outbox);
  outbox.SetTimer(kDropSilent, timing_.interval);
}

void SchedulerActor::EnterPhase(Phase phase, Outbox& outbox) {
  phase_ = phase;
  answered_.clear();
  if (const std::optional<Duration> deadline = DeadlineOf(phase)) {
    outbox.SetTimer(kPhaseDeadline, *deadline);
  } else {
    outbox.CancelTimer(kPhaseDeadline);
  }
}

void SchedulerActor::OnMessage(const Envelope& envelope, Outbox& outbox) {
  HandleMessage(envelope, outbox);
  TellPhase(outbox);
}

void SchedulerActor::OnTimer(TimerId timer, Outbox& outbox) {
  HandleTimer(timer, outbox);
  TellPhase(outbox);
}

Duration SchedulerActor::StallDeadline() const { return poseidon::StallDeadline(options_.job); }

std::optional<Duration> SchedulerActor::DeadlineOf(Phase phase) const {
  switch (phase) {
    case Phase::kTraining:
      // Nobody waits for the end of a training before somebody has come to it. Then what holds the
      // others up may be a lost frame, which lanes report later than this deadline and after which
      // a job that recovers goes back.
      if (answered_.empty()) return std::nullopt;
      return (Recovers() ? 2 : 1) * StallDeadline();
    case Phase::kEnded:
      return std::nullopt;
    case Phase::kAgreeing:  // a worker answers at the latest at the end of its iteration
      return StallDeadline();
    case Phase::kPausing:
      return PauseDeadline(options_.job);
    case Phase::kHolding:  // a control lane answers at once, a program that loads values when it
                           // can
      return programs_load_ ? StallDeadline() : timing_.allowed_silence();
    case Phase::kPreparing:  // who is training already says so at once
      if (taking_over_ && was_training_) return timing_.deadline;
      // In a training a program hears of the plan when its test or its snapshot is done.
      return HasBegun() ? std::max(JoinDeadline(), StallDeadline()) : JoinDeadline();
    case Phase::kRegrouping:
      return Seconds(options_.job.recovery().replacement_deadline_seconds());
    default:
      return JoinDeadline();
  }
}

void SchedulerActor::HandleMessage(const Envelope& envelope, Outbox& outbox) {
  if (envelope.kind == MessageKind::kRegister) return OnRegister(envelope, outbox);
  if (phase_ == Phase::kEnded) return;
  if (envelope.kind == MessageKind::kPeerSilent) return OnSilent(envelope, outbox);
  if (envelope.kind == MessageKind::kCutOff) return OnCutOff(envelope, outbox);
  if (envelope.kind == MessageKind::kLostProcess) return OnLostProcess(envelope, outbox);
  if (envelope.kind == MessageKind::kAskSnapshot) return OnAskSnapshot(outbox);
  if (envelope.kind == MessageKind::kStopTraining) return OnStopTraining(outbox);
  if (envelope.kind == MessageKind::kStop) return OnStop(envelope, outbox);
  if (envelope.kind == MessageKind::kSwitchPlan) return OnSwitchPlan(envelope, outbox);
  if (envelope.kind == MessageKind::kLeave && envelope.body.size() > 0) {
    return OnLeaveRequest(envelope, outbox);
  }
  // All else comes from members of the view.
  if (phase_ == Phase::kGathering || envelope.epoch != view_.epoch()) return;
  if (!members_.contains(envelope.from.node)) return;
  switch (envelope.kind) {
    case MessageKind::kDeclareModel:
      return OnDeclareModel(envelope, outbox);
    case MessageKind::kLinkReport:
      return OnLinkReport(envelope, outbox);
    case MessageKind::kReady:
      return OnReady(envelope, outbox);
    case MessageKind::kLayerTimes:
      return OnLayerTimes(envelope, outbox);
    case MessageKind::kPauseOffer:
      return OnPauseOffer(envelope, outbox);
    case MessageKind::kPaused:
      return OnPaused(envelope, outbox);
    case MessageKind::kLeave:
      return OnLeave(envelope, outbox);
    case MessageKind::kHoldings:
      return OnHoldings(envelope, outbox);
    case MessageKind::kFinished:
      return OnFinished(envelope, outbox);
    case MessageKind::kFailed:
      return OnFailed(envelope, outbox);
    case MessageKind::kStalled:
      return OnStalled(envelope, outbox);
    case MessageKind::kNotice:
      return OnNotice(envelope, outbox);
    case MessageKind::kProgress:
      return OnProgress(envelope, outbox);
    default:
      return;
  }
}

void SchedulerActor::HandleTimer(TimerId timer, Outbox& outbox) {
  if (timer == kDropSilent) return DropSilentNodes(outbox);
  if (phase_ == Phase::kEnded) return;
  // Who can't answer is not late.
  const bool blames = timer == kStallsCollected || timer == kPhaseDeadline;
  if (blames && IsCutOff()) return outbox.SetTimer(timer, timing_.check_interval());
  if (timer == kStallsCollected) return EndStalled(outbox);
  if (timer == kRegroup) return TryChangeMembers(outbox);
  if (timer == kRepeatRecovery) return RepeatRecovery(outbox);
  if (timer == kLookForProgress) return LookForProgress(outbox);
  OnPhaseDeadline(outbox);
}

void SchedulerActor::DropSilentNodes(Outbox& outbox) {
  if (phase_ != Phase::kGathering && !Recovers()) return;
  for (const wire::Node& node :
       roster_.DropSilent(outbox.now, timing_.allowed_silence(), members_)) {
    LOG(WARNING) << Describe(node) << " joined but is silent; it is no longer counted";
  }
  for (const wire::Node& node : spares_.DropSilent(outbox.now, timing_.allowed_silence())) {
    LOG(WARNING) << Describe(node) << ", a spare, is silent; it is no longer counted";
  }
  outbox.SetTimer(kDropSilent, timing_.interval);
}

std::string SchedulerActor::WhatIsLate() const {
  const std::string waited = " after " + SecondsText(JoinDeadline());
  switch (phase_) {
    case Phase::kGathering:
      return "still missing " + roster_.Missing() + waited + " (cluster.join_deadline_seconds); " +
             (options_.launched ? "they have been started, so their logs say why, or the network "
                                  "keeps them from " +
                                      HostAndPort{options_.job.cluster().scheduler_host(),
                                                  options_.job.cluster().scheduler_port()}
                                          .ToString()
              : options_.host_is_own
                  ? "start them, or correct cluster.workers and cluster.servers"
                  : "cluster.scheduler_host, \"" + options_.job.cluster().scheduler_host() +
                        "\", is not this machine, so they may look for the scheduler elsewhere");
    case Phase::kDeclaring:
      return MissingFrom(answered_, false) +
             (MeasuresLinks(options_.job) ? " did not declare the model or measure its links"
                                          : " did not declare the model") +
             waited;
    case Phase::kPreparing:
      return MissingFrom(answered_, true) + " did not get ready to train" +
             (taking_over_ && was_training_ ? " under a scheduler that was away" : waited);
    case Phase::kTraining:
      return MissingFrom(answered_, false) + " did not finish although others have";
    case Phase::kAgreeing:
      return MissingFrom(answered_, false) + " did not say when it can pause within " +
             SecondsText(StallDeadline()) + " (communication.stall_deadline_seconds)";
    case Phase::kPausing:
      return MissingFrom(answered_, false) + " did not pause before iteration " +
             std::to_string(next_.start) + " for another plan within " +
             SecondsText(PauseDeadline(options_.job));
    case Phase::kHolding:
      return "did not stop the exchange";
    case Phase::kRegrouping:
      return "lost " + LostNames() + " (" + round_.cause() +
             "), and nobody took the place within " + SecondsText(*DeadlineOf(Phase::kRegrouping)) +
             " (recovery.replacement_deadline_seconds)";
    case Phase::kEnded:
      break;
  }
  return "";
}

void SchedulerActor::MakeView(int32_t number, Outbox& outbox) {
  const std::vector<wire::Node> assigned = roster_.AssignRanks();
  WriteView(outbox);
  for (const wire::Node& node : assigned) {
    if (options_.logs_members) LOG(INFO) << Describe(node) << " has its rank";
    // The node that had this place may be another one.
    outbox.routes.push_back({{IdOf(node), kControlLane}, node.endpoints(kControlLane)});
    TellRank(IdOf(node), true, outbox);
  }
  view_number_ = number;
  view_.Clear();
  members_.clear();
  view_.set_base(options_.epoch);
  view_.set_epoch(options_.epoch + (static_cast<uint64_t>(number) << 32));
  for (const wire::Node& node : roster_.nodes()) {
    *view_.add_nodes() = node;
    members_.insert(IdOf(node));
  }
  // One body for all: they know their ranks from the answers to their registrations.
  wire::View view = view_;
  view.set_your_rank(-1);
  view_body_ = Payload::FromString(view.SerializeAsString());
  Broadcast(MessageKind::kView, view_body_, outbox);
  HeartbeatMonitorOptions monitor;
  monitor.timing = timing_;
  monitor.tells_overdue = options_.job.has_monitor();
  monitor.own_hosts = options_.own_hosts;
  // As long as the nodes look for a scheduler that is silent.
  monitor.cut_off_deadline = SchedulerDeadline(options_.job).value_or(Duration::zero());
  monitor.after_cut = std::exchange(cut_off_in_view_, false);
  cut_off_ = wire::CutOff::HEARD;
  outbox.Attach(kHeartbeatLane, std::make_unique<HeartbeatMonitor>(std::move(monitor), view_));
  outbox.Send(MakeEnvelope(MessageKind::kJoined, Here(kApplicationLane), view_));
}

void SchedulerActor::OnDeclareModel(const Envelope& envelope, Outbox& outbox) {
  if (envelope.from.node.role != Role::kWorker) return;
  if (plan_body_.size() > 0) return CheckModel(envelope, outbox);
  if (phase_ != Phase::kDeclaring) return;
  const NodeId worker = envelope.from.node;
  wire::Declaration declaration;
  if (!declaration.ParseFromString(envelope.body.ToString())) return;
  const std::string model = declaration.model();
  const std::optional<NodeId> other = declarations_.AddModel(worker, std::move(declaration));
  if (other) {
    return End(ExitCode::kConfigError,
               Describe(FindNode(view_, worker)) + " declared another model than " +
                   Describe(FindNode(view_, *other)) + ": " +
                   DescribeModelDifference(model, declarations_.model()) +
                   "; every worker must train the same one, from the same files",
               outbox);
  }
  TryFirstPlan(worker, outbox);
}

void SchedulerActor::OnLinkReport(const Envelope& envelope, Outbox& outbox) {
  wire::LinkReport report;
  if (phase_ != Phase::kDeclaring || envelope.from.node.role != Role::kWorker ||
      !report.ParseFromString(envelope.body.ToString()) ||
      !IsPlausible(report, options_.job.cluster().workers())) {
    return;
  }
  report.set_rank(envelope.from.node.rank);
  outbox.Send(MakeEnvelope(MessageKind::kLinkReport, Here(kApplicationLane), report));
  declarations_.AddLinks(envelope.from.node, std::move(report));
  TryFirstPlan(envelope.from.node, outbox);
}

void SchedulerActor::TryFirstPlan(const NodeId& worker, Outbox& outbox) {
  const bool measured = MeasuresLinks(options_.job);
  if (declarations_.Has(worker, measured)) answered_.insert(worker);
  if (static_cast<int>(answered_.size()) < options_.job.cluster().workers()) return;
  std::vector<WorkerInputs> inputs;
  for (const auto& [node, input] : declarations_.inputs()) {
    inputs.push_back({FindNode(view_, node), input});
  }
  if (const std::string disagreement = DescribeDisagreement(inputs); !disagreement.empty()) {
    return End(ExitCode::kDataError, disagreement, outbox);
  }
  if (measured) {
    Network& network = *options_.job.mutable_cluster()->mutable_network();
    network.set_colocated(AreColocated(view_));
    network = NetworkOf(declarations_.links(), network);
  }
  MakeFirstPlan(outbox);
}

void SchedulerActor::MakeFirstPlan(Outbox& outbox) {
  wire::PlanAndModel body;
  if (!body.mutable_model()->ParseFromString(declarations_.model())) {
    return End(ExitCode::kProtocolError, "the declared model is not readable", outbox);
  }
  first_iteration_ = declarations_.first_iteration();
  declared_hash_ = std::hash<std::string>()(declarations_.model());
  const auto& [first, inputs] = *declarations_.inputs().begin();
  declared_inputs_ = {FindNode(view_, first), WithoutStart(inputs)};
  declarations_ = {};  // as large as the model
  wire::JournalRecord record;
  wire::DeclaredRecord& declared = *record.mutable_declared();
  declared.set_first_iteration(first_iteration_);
  declared.set_model_hash(declared_hash_);
  *declared.mutable_worker() = declared_inputs_.node;
  *declared.mutable_inputs() = declared_inputs_.inputs;
  Write(record, outbox);
  try {
    // Throws here what would else end every node.
    CheckRate(ToUpdateRule(body.model().update_rule()));
    CheckStaleness(body.model(), options_.job.communication());
    const InformationBook book = InformationBook(body.model(), options_.job.cluster())
                                     .WithLanes(roster_.LeastEndpoints() - kFirstDataLane);
    *body.mutable_plan() = options_.planner(book, options_.job);
    roster_.Require(kFirstDataLane + body.plan().lanes());
    PlaceBackupsOnHosts(*body.mutable_plan(), outbox);
    body.mutable_plan()->set_start_iteration(first_iteration_);
    if (options_.job.cluster().has_network()) {
      *body.mutable_network() = options_.job.cluster().network();
    }
  } catch (const Error& error) {
    return End(error.exit_code(), error.what(), outbox);
  }
  SendPlan(body, outbox);
}

void SchedulerActor::SendPlan(const wire::PlanAndModel& plan, Outbox& outbox) {
  plan_ = plan;
  plan_body_ = Payload::FromString(plan_.SerializeAsString());
  wire::JournalRecord record;
  *record.mutable_plan() = plan_;
  Write(record, outbox);
  Broadcast(MessageKind::kPlan, plan_body_, outbox);
  Envelope own;
  own.kind = MessageKind::kPlan;
  own.to = Here(kApplicationLane);
  own.body = plan_body_;
  outbox.Send(std::move(own));
  EnterPhase(Phase::kPreparing, outbox);
}

void SchedulerActor::OnReady(const Envelope& envelope, Outbox& outbox) {
  if (envelope.step != PlanNumber()) return;
  // It says so again: the start has not reached it. Who has finished tells of that only then, also
  // while the others agree on when to pause.
  if (phase_ == Phase::kTraining || phase_ == Phase::kAgreeing || phase_ == Phase::kPausing) {
    return SendStart(envelope.from.node, outbox);
  }
  if (phase_ != Phase::kPreparing) return;
  answered_.insert(envelope.from.node);
  if (static_cast<int>(answered_.size()) == view_.nodes_size()) StartTraining(outbox);
}

void SchedulerActor::StartTraining(Outbox& outbox) {
  if (last_progress_ == Time{}) last_progress_ = outbox.now;
  const std::optional<wire::Recovered> recovered = FinishRecovery(outbox);
  wire::JournalRecord record;
  wire::StartRecord& start = *record.mutable_start();
  if (recovered) *start.mutable_recovered() = *recovered;
  Write(record, outbox);
  report_from_ = plan_.plan().start_iteration();
  if (unreported_) report_from_ = std::min(report_from_, *unreported_);
  unreported_.reset();
  if (recovered) {
    outbox.Send(MakeEnvelope(MessageKind::kRecovered, Here(kApplicationLane), *recovered));
  }
  for (const wire::Node& node : view_.nodes()) SendStart(IdOf(node), outbox);
  EnterPhase(Phase::kTraining, outbox);
  if (taking_over_ && was_training_) Tell("training went on without a scheduler", outbox);
  taking_over_ = programs_load_ = false;
  last_start_ = outbox.now;
  quiet_.Heard(outbox.now);
  LookForProgress(outbox);
  if (IsElastic()) roster_.OpenTo(MostWorkers());
  TellLayerTimes(times_.Remain(RanksOfWorkers(plan_.plan())), outbox);
  if (snapshot_by_) RequestSnapshot(outbox);
  AgreeOnStop(outbox);
  TryChangeMembers(outbox);
}

void SchedulerActor::SendStart(const NodeId& node, Outbox& outbox) const {
  Envelope start = ToNode(MessageKind::kStart, node, {});
  start.step = PlanNumber();
  start.iteration = report_from_;
  outbox.Send(std::move(start));
}

void SchedulerActor::Broadcast(MessageKind kind, const Payload& body, Outbox& outbox) {
  for (const wire::Node& node : view_.nodes()) outbox.Send(ToNode(kind, IdOf(node), body));
}

void SchedulerActor::BroadcastToWorkers(MessageKind kind, int64_t iteration, Outbox& outbox) {
  for (const wire::Node& node : view_.nodes()) {
    if (IdOf(node).role != Role::kWorker) continue;
    Envelope envelope = ToNode(kind, IdOf(node), {});
    envelope.iteration = iteration;
    outbox.Send(std::move(envelope));
  }
}

Envelope SchedulerActor::ToNode(MessageKind kind, const NodeId& node, const Payload& body) const {
  Envelope envelope;
  envelope.kind = kind;
  envelope.to = {node, kControlLane};
  envelope.epoch = view_.epoch();
  envelope.body = body;
  return envelope;
}

void SchedulerActor::End(ExitCode code, const std::string& reason, Outbox& outbox) {
  // Who is not reached keeps others waiting.
  const std::string unreachable = code == ExitCode::kDeadlineExceeded ? roster_.Unreachable() : "";
  End(MakeEnd(code, reason + (unreachable.empty() ? "" : "; " + unreachable)), outbox);
}

void SchedulerActor::End(const wire::End& end, Outbox& outbox) {
  end_ = end;
  // A job that has had no view can begin anew.
  if (view_body_.size() > 0) {
    wire::JournalRecord record;
    *record.mutable_end() = end;
    Write(record, outbox);
  }
  const Payload body = Payload::FromString(end.SerializeAsString());
  Broadcast(MessageKind::kEnd, body, outbox);
  EndNewcomers(end, outbox);
  outbox.Send(MakeEnvelope(MessageKind::kEnd, Here(kApplicationLane), end));
  EnterPhase(Phase::kEnded, outbox);
}

std::string SchedulerActor::MissingFrom(const std::set<NodeId>& present, bool servers_too) const {
  std::string missing;
  for (const wire::Node& node : view_.nodes()) {
    const bool counts = servers_too || IdOf(node).role == Role::kWorker;
    if (!counts || present.contains(IdOf(node))) continue;
    if (!missing.empty()) missing += ", ";
    missing += Describe(node);
  }
  return missing;
}

}  // namespace poseidon
