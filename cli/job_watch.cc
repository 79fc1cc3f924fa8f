#include "cli/job_watch.h"

#include <glog/logging.h>
#include <google/protobuf/text_format.h>
#include <unistd.h>

#include <iostream>
#include <utility>

#include "core/error.h"
#include "core/steady_now.h"
#include "proto/rate_advice.h"
#include "transport/membership/member.h"

namespace poseidon {
namespace {

// How often the loop looks for a signal.
constexpr Duration kTick = std::chrono::milliseconds(100);

}  // namespace

void Show(const std::string& text) { std::cout << text << std::endl; }

Envelope InterruptedStop() {
  return MakeEnvelope(MessageKind::kStop, Here(kControlLane),
                      MakeEnd(ExitCode::kInterrupted, "the scheduler was interrupted by a signal"));
}

JobWatch::JobWatch(ZmqRuntime& runtime, const Job& job, bool launched, Journal* journal,
                   JobMonitor* monitor)
    : runtime_(runtime),
      job_(job),
      journal_(journal, JournalPatience(job)),
      monitor_(monitor),
      report_(MakeReport()) {
  if (launched) launcher_.emplace(STDIN_FILENO);
  if (journal == nullptr) return;
  shows_joining_ = journal->state().stage == JobState::Stage::kGathering;
  if (journal->state().plan) {
    plan_ = *journal->state().plan;
    balancer_.SetPlan(plan_.plan());
  }
  journal->TakePast([this](const wire::JournalRecord& record) {
    report_.Restore(record);
    if (monitor_ != nullptr) monitor_->tracker().Restore(record);
  });
  if (monitor_ == nullptr) return;
  monitor_->tracker().OnStragglers(report_.stragglers());
  monitor_->Publish(SteadyNow());
}

wire::End JobWatch::Run(Interruption& interruption) {
  while (true) {
    if (interruption.Pending()) runtime_.Post(InterruptedStop());
    if (const auto request = interruption.TakeRequest()) PassOn(request->effect);
    if (launcher_) HearLauncher();
    WriteJournal();
    const std::optional<Envelope> envelope = runtime_.mailbox().Take(kTick);
    if (const auto replanned = replan_.Take()) OnReplanned(*replanned);
    if (monitor_ != nullptr) monitor_->Publish(SteadyNow());
    if (!envelope) continue;
    if (const std::optional<wire::End> end = OnMessage(*envelope)) {
      if (monitor_ != nullptr) monitor_->End(*end, SteadyNow());
      return *end;
    }
  }
}

JobReport JobWatch::MakeReport() {
  return JobReport(job_.cluster().workers(), [this](const wire::JournalRecord& record) {
    journal_.Add(record, std::nullopt);
    if (monitor_ == nullptr || !record.has_iteration()) return;
    monitor_->tracker().OnIteration(record.iteration(), SteadyNow());
  });
}

void JobWatch::PassOn(SignalEffect effect) {
  Envelope asked;
  asked.kind =
      effect == SignalEffect::kStop ? MessageKind::kStopTraining : MessageKind::kAskSnapshot;
  asked.to = Here(kControlLane);
  runtime_.Post(std::move(asked));
}

void JobWatch::HearLauncher() {
  for (const std::string& line : launcher_->Take()) {
    wire::LostProcess lost;
    if (!google::protobuf::TextFormat::ParseFromString(line, &lost)) continue;
    runtime_.Post(MakeEnvelope(MessageKind::kLostProcess, Here(kControlLane), lost));
  }
  if (launcher_->ended()) Stop(MakeEnd(ExitCode::kInterrupted, "it was interrupted"));
}

void JobWatch::Stop(const wire::End& end) {
  runtime_.Post(MakeEnvelope(MessageKind::kStop, Here(kControlLane), end));
}

void JobWatch::WriteJournal() {
  try {
    SayWritten(journal_.Write(SteadyNow()));
  } catch (const Error& error) {
    const std::string why = std::string(error.what()) +
                            ", and without its journal the job would not survive its scheduler";
    LOG(ERROR) << why;
    Stop(MakeEnd(error.exit_code(), why));
    SayWritten(journal_.Write(SteadyNow()));
  }
  if (const std::optional<std::string> news = journal_.TakeNews()) Tell(*news);
}

void JobWatch::SayWritten(std::optional<int64_t> question) {
  if (!question) return;
  Envelope journaled;
  journaled.kind = MessageKind::kJournaled;
  journaled.to = Here(kControlLane);
  journaled.iteration = *question;
  runtime_.Post(std::move(journaled));
}

void JobWatch::OnJournal(const Envelope& envelope) {
  wire::JournalRecord record;
  record.ParseFromString(envelope.body.ToString());
  journal_.Add(record, envelope.iteration);
}

void JobWatch::Tell(const std::string& sentence) {
  LOG(INFO) << sentence;
  Show(sentence);
  if (monitor_ == nullptr) return;
  wire::Notice notice;
  notice.set_text(sentence);
  notice.set_rank(-1);
  monitor_->tracker().OnNotice(notice);
}

std::optional<wire::End> JobWatch::OnMessage(const Envelope& envelope) {
  const std::string body = envelope.body.ToString();
  switch (envelope.kind) {
    case MessageKind::kJournal:
      OnJournal(envelope);
      break;
    case MessageKind::kJoined:
      OnJoined(body);
      break;
    case MessageKind::kPlan:
      OnPlan(body);
      break;
    case MessageKind::kLinkReport:
      OnLinkReport(body);
      break;
    case MessageKind::kLayerTimes:
      OnLayerTimes(body);
      break;
    case MessageKind::kNotice:
      OnNotice(body);
      break;
    case MessageKind::kProgress:
      OnProgress(body);
      break;
    case MessageKind::kFinished:
      OnFinished(body);
      break;
    case MessageKind::kRecovered:
      OnRecovered(body);
      break;
    case MessageKind::kJobPhase:
      OnJobPhase(body);
      break;
    case MessageKind::kOverdue:
      OnOverdue(body);
      break;
    case MessageKind::kEnd:
    case MessageKind::kFailed: {
      wire::End end;
      end.ParseFromString(body);
      return end;
    }
    default:
      break;
  }
  return std::nullopt;
}

void JobWatch::OnJoined(const std::string& body) {
  wire::View view;
  view.ParseFromString(body);
  if (monitor_ != nullptr) monitor_->tracker().OnView(view);
  // Later the places of lost nodes are taken; what comes of that is told when training goes on.
  if (!std::exchange(shows_joining_, false)) return;
  const wire::Node first = FindNode(view, {Role::kWorker, 0});
  Show("all " + std::to_string(view.nodes_size()) + " nodes have joined; worker 0 is process " +
       std::to_string(first.pid()) + " on " + first.host());
  if (job_.communication().policy() == Communication::TIME &&
      job_.cluster().network().tier_size() > 0) {
    Show("planning for a network in tiers, which takes some ten seconds");
  }
}

void JobWatch::OnNotice(const std::string& body) {
  wire::Notice notice;
  if (!notice.ParseFromString(body)) return;
  Show((notice.rank() < 0 ? "" : "worker " + std::to_string(notice.rank()) + ": ") + notice.text());
  if (monitor_ != nullptr) monitor_->tracker().OnNotice(notice);
}

void JobWatch::OnJobPhase(const std::string& body) {
  wire::JobPhase phase;
  if (monitor_ == nullptr || !phase.ParseFromString(body)) return;
  monitor_->tracker().OnPhase(phase, SteadyNow());
}

void JobWatch::OnOverdue(const std::string& body) {
  wire::Silent overdue;
  if (monitor_ == nullptr || !overdue.ParseFromString(body)) return;
  monitor_->tracker().OnOverdue(overdue);
}

void JobWatch::OnPlan(const std::string& body) {
  plan_.ParseFromString(body);
  report_.OnPlan(plan_);
  balancer_.SetPlan(plan_.plan());
  if (replan_.PlanChanged(plan_)) {
    Show(
        "the better plan was passed over, as another one came in between; it is searched for "
        "again");
  }
  if (monitor_ != nullptr) monitor_->tracker().OnPlan(plan_);
  if (plan_.plan().layout() != plan_.plan().number()) return;  // one that has been shown
  if (plan_.plan().number() > 0) {
    Show("another plan from iteration " + std::to_string(plan_.plan().start_iteration()) + " on");
  }
  Show(report_.PlanTable());
  const std::optional<std::string> advice = RateAdvice(plan_.plan(), plan_.model().update_rule());
  if (advice && plan_.plan().number() == 0) Show("warning: " + *advice);
}

void JobWatch::OnLayerTimes(const std::string& body) {
  wire::LayerTimes times;
  // Two runs must not differ in what was measured.
  if (!times.ParseFromString(body) || job_.communication().deterministic()) return;
  replan_.Start(job_, plan_, times);
}

void JobWatch::OnReplanned(const Replanned& replanned) {
  Show(replanned.why);
  report_.OnRecalibration(replanned.current);
  if (monitor_ != nullptr) monitor_->tracker().OnRecalibration(replanned.current);
  if (!replanned.plan) return;
  wire::PlanAndModel next = *replanned.plan;
  *next.mutable_plan()->mutable_parts() = plan_.plan().parts();
  runtime_.Post(MakeEnvelope(MessageKind::kSwitchPlan, Here(kControlLane), next));
}

void JobWatch::OnLinkReport(const std::string& body) {
  wire::LinkReport links;
  if (!links.ParseFromString(body)) return;
  report_.OnLinks(links);
  if (monitor_ != nullptr) monitor_->tracker().OnLinks(links);
}

void JobWatch::OnProgress(const std::string& body) {
  wire::Progress progress;
  if (!progress.ParseFromString(body)) return;
  const Time now = SteadyNow();
  if (monitor_ != nullptr) monitor_->tracker().OnProgress(progress, now);
  if (const auto line = report_.OnProgress(progress, now)) Show(*line);
  OnPace(progress);
  Rebalance(progress);
}

void JobWatch::OnPace(const wire::Progress& progress) {
  const std::vector<std::string> news = report_.OnPace(progress);
  if (news.empty()) return;
  for (const std::string& sentence : news) Tell(sentence);
  if (monitor_ != nullptr) monitor_->tracker().OnStragglers(report_.stragglers());
}

void JobWatch::Rebalance(const wire::Progress& progress) {
  // Two runs must not differ in what was measured.
  if (job_.communication().deterministic()) return;
  const auto rebalanced = balancer_.Add(progress);
  if (!rebalanced) return;
  Show(rebalanced->why);
  wire::PlanAndModel next = plan_;
  next.mutable_plan()->mutable_parts()->Assign(rebalanced->parts.begin(), rebalanced->parts.end());
  runtime_.Post(MakeEnvelope(MessageKind::kSwitchPlan, Here(kControlLane), next));
}

void JobWatch::OnRecovered(const std::string& body) {
  wire::Recovered recovered;
  if (!recovered.ParseFromString(body)) return;
  Show(report_.OnRecovered(recovered));
  balancer_.Forget();
  if (monitor_ != nullptr) monitor_->tracker().OnRecovered(recovered);
}

void JobWatch::OnFinished(const std::string& body) {
  wire::WorkerReport worker;
  if (!worker.ParseFromString(body)) return;
  report_.OnFinished(worker);
  if (monitor_ != nullptr) monitor_->tracker().OnFinished(worker);
}

}  // namespace poseidon
