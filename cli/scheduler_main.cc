// poseidon_scheduler: the coordinator daemon. Gathers the nodes of a job, plans, watches, reports.
#include <gflags/gflags.h>
#include <glog/logging.h>
#include <google/protobuf/text_format.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "core/atomic_file.h"
#include "core/error.h"
#include "core/files/directories.h"
#include "core/net/host_address.h"
#include "core/own_flags.h"
#include "core/process/bounded_output.h"
#include "core/process/input_lines.h"
#include "core/program.h"
#include "core/steady_now.h"
#include "launch/given_up.h"
#include "proto/job_config.h"
#include "proto/rate_advice.h"
#include "scheduler/journal/journal.h"
#include "scheduler/journal/journal_writer.h"
#include "scheduler/monitor/job_monitor.h"
#include "scheduler/report/job_report.h"
#include "scheduler/scheduler_actor.h"
#include "scheduler/stragglers/batch_balancer.h"
#include "simulation/background_replan.h"
#include "simulation/plan_trial.h"
#include "transport/membership/event_writer.h"
#include "transport/membership/node_setup.h"
#include "transport/zmq/zmq_runtime.h"

DEFINE_string(config, "", "The job config (docs/configuration.md); the same for all nodes.");
DEFINE_bool(launched, false,
            "Standard input is this scheduler's launcher: each line is a wire::LostProcess in text "
            "format, and its end ends the job. For `poseidon run`.");
DEFINE_string(sigint_effect, "end",
              "What SIGINT does: \"stop\" ends training after an iteration, with the snapshot of "
              "its end; \"snapshot\" has one written and goes on; \"none\"; or \"end\", at once.");
DEFINE_string(sighup_effect, "end", "Likewise of SIGHUP.");
DEFINE_string(out, "",
              "Directory for summary.json, scheduler.events.json if the job ends badly or wants a "
              "trace, and, in a job with `recovery`, scheduler.journal, from "
              "which the scheduler goes on that is started after this one; made if it is not "
              "there. Empty: none.");

namespace poseidon {
namespace {

// How often the loop looks for a signal.
constexpr Duration kTick = std::chrono::milliseconds(100);

// What a machine that is there needs to confirm a message is a round trip; what it does not is sent
// again after a fifth of a second.
constexpr Duration kConfirmationTime = std::chrono::milliseconds(500);

void Show(const std::string& text) { std::cout << text << std::endl; }

// Another term of a job; or the first, of one that need not survive its scheduler.
void TellOfPast(const Journal& journal, const std::string& path) {
  const JobState& past = journal.state();
  if (journal.cut_bytes() > 0) {
    LOG(WARNING) << "cut " << journal.cut_bytes() << " bytes off the end of " << path
                 << ": the scheduler before was killed while it wrote them, and nobody has heard "
                    "of them";
  }
  if (past.end) {
    Show("the job \"" + past.name + "\" has ended already: " + past.end->reason() +
         "; to run it anew, remove " + path);
  } else if (past.stage != JobState::Stage::kGathering) {
    Show("goes on with the job \"" + past.name + "\" of the scheduler before, which was lost at " +
         (past.reached > past.declared.first_iteration()
              ? "iteration " + std::to_string(past.reached)
              : "its start"));
  }
}

// What the scheduler's program does with what the job tells it: shows it, writes it down, and goes
// over to a better plan.
class JobWatch {
 public:
  // `journal` and `monitor` may be null.
  JobWatch(ZmqRuntime& runtime, const Job& job, Journal* journal, JobMonitor* monitor)
      : runtime_(runtime), job_(job), journal_(journal), monitor_(monitor), report_(MakeReport()) {
    if (FLAGS_launched) launcher_.emplace(STDIN_FILENO);
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
    if (monitor_ != nullptr) monitor_->tracker().OnStragglers(report_.stragglers());
  }

  const JobReport& report() const { return report_; }

  // Until the job ends; returns why it did.
  wire::End Run(Interruption& interruption) {
    while (true) {
      if (interruption.Pending()) AskToStop("the scheduler was interrupted by a signal");
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

 private:
  JobReport MakeReport() {
    return JobReport(job_.cluster().workers(), [this](const wire::JournalRecord& record) {
      journal_.Add(record, std::nullopt);
      if (monitor_ == nullptr || !record.has_iteration()) return;
      monitor_->tracker().OnIteration(record.iteration(), SteadyNow());
    });
  }

  void AskToStop(const std::string& why) { Stop(MakeEnd(ExitCode::kInterrupted, why)); }

  void PassOn(SignalEffect effect) {
    Envelope asked;
    asked.kind =
        effect == SignalEffect::kStop ? MessageKind::kStopTraining : MessageKind::kAskSnapshot;
    asked.to = Here(kControlLane);
    runtime_.Post(std::move(asked));
  }

  void HearLauncher() {
    for (const std::string& line : launcher_->Take()) {
      wire::LostProcess lost;
      if (!google::protobuf::TextFormat::ParseFromString(line, &lost)) continue;
      runtime_.Post(MakeEnvelope(MessageKind::kLostProcess, Here(kControlLane), lost));
    }
    if (launcher_->ended()) AskToStop("it was interrupted");
  }

  void Stop(const wire::End& end) {
    runtime_.Post(MakeEnvelope(MessageKind::kStop, Here(kControlLane), end));
  }

  // What messages have brought, and what could not be written before.
  void WriteJournal() {
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

  void SayWritten(std::optional<int64_t> question) {
    if (!question) return;
    Envelope journaled;
    journaled.kind = MessageKind::kJournaled;
    journaled.to = Here(kControlLane);
    journaled.iteration = *question;
    runtime_.Post(std::move(journaled));
  }

  void OnJournal(const Envelope& envelope) {
    wire::JournalRecord record;
    record.ParseFromString(envelope.body.ToString());
    journal_.Add(record, envelope.iteration);
  }

  // Everybody who watches the job.
  void Tell(const std::string& sentence) {
    LOG(INFO) << sentence;
    Show(sentence);
    if (monitor_ == nullptr) return;
    wire::Notice notice;
    notice.set_text(sentence);
    notice.set_rank(-1);
    monitor_->tracker().OnNotice(notice);
  }

  // Returns the job's end, if it is the message of that.
  std::optional<wire::End> OnMessage(const Envelope& envelope) {
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

  void OnJoined(const std::string& body) {
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

  void OnNotice(const std::string& body) {
    wire::Notice notice;
    if (!notice.ParseFromString(body)) return;
    Show((notice.rank() < 0 ? "" : "worker " + std::to_string(notice.rank()) + ": ") +
         notice.text());
    if (monitor_ != nullptr) monitor_->tracker().OnNotice(notice);
  }

  void OnJobPhase(const std::string& body) {
    wire::JobPhase phase;
    if (monitor_ == nullptr || !phase.ParseFromString(body)) return;
    monitor_->tracker().OnPhase(phase, SteadyNow());
  }

  void OnOverdue(const std::string& body) {
    wire::Silent overdue;
    if (monitor_ == nullptr || !overdue.ParseFromString(body)) return;
    monitor_->tracker().OnOverdue(overdue);
  }

  void OnPlan(const std::string& body) {
    plan_.ParseFromString(body);
    report_.OnPlan(plan_);
    balancer_.SetPlan(plan_.plan());
    if (monitor_ != nullptr) monitor_->tracker().OnPlan(plan_);
    if (plan_.plan().layout() != plan_.plan().number()) return;  // one that has been shown
    if (plan_.plan().number() > 0) {
      Show("another plan from iteration " + std::to_string(plan_.plan().start_iteration()) + " on");
    }
    Show(report_.PlanTable());
    const std::optional<std::string> advice = RateAdvice(plan_.plan(), plan_.model().update_rule());
    if (advice && plan_.plan().number() == 0) Show("warning: " + *advice);
  }

  void OnLayerTimes(const std::string& body) {
    wire::LayerTimes times;
    // Two runs must not differ in what was measured.
    if (!times.ParseFromString(body) || job_.communication().deterministic()) return;
    replan_.Start(job_, plan_, times);
  }

  // Goes over to another plan if the measured times make one much better.
  void OnReplanned(const Replanned& replanned) {
    // Of a plan that is no more, for somebody has been lost or has come.
    if (replanned.current.layout() != plan_.plan().layout()) return;
    Show(replanned.why);
    report_.OnRecalibration(replanned.current);
    if (monitor_ != nullptr) monitor_->tracker().OnRecalibration(replanned.current);
    if (!replanned.plan) return;
    wire::PlanAndModel next = *replanned.plan;
    *next.mutable_plan()->mutable_parts() = plan_.plan().parts();
    runtime_.Post(MakeEnvelope(MessageKind::kSwitchPlan, Here(kControlLane), next));
  }

  void OnLinkReport(const std::string& body) {
    wire::LinkReport links;
    if (!links.ParseFromString(body)) return;
    report_.OnLinks(links);
    if (monitor_ != nullptr) monitor_->tracker().OnLinks(links);
  }

  void OnProgress(const std::string& body) {
    wire::Progress progress;
    if (!progress.ParseFromString(body)) return;
    const Time now = SteadyNow();
    if (monitor_ != nullptr) monitor_->tracker().OnProgress(progress, now);
    if (const auto line = report_.OnProgress(progress, now)) Show(*line);
    OnPace(progress);
    Rebalance(progress);
  }

  void OnPace(const wire::Progress& progress) {
    const std::vector<std::string> news = report_.OnPace(progress);
    if (news.empty()) return;
    for (const std::string& sentence : news) Tell(sentence);
    if (monitor_ != nullptr) monitor_->tracker().OnStragglers(report_.stragglers());
  }

  // Goes over to other parts of the batch if they pay.
  void Rebalance(const wire::Progress& progress) {
    // Two runs must not differ in what was measured.
    if (job_.communication().deterministic()) return;
    const auto rebalanced = balancer_.Add(progress);
    if (!rebalanced) return;
    Show(rebalanced->why);
    wire::PlanAndModel next = plan_;
    next.mutable_plan()->mutable_parts()->Assign(rebalanced->parts.begin(),
                                                 rebalanced->parts.end());
    runtime_.Post(MakeEnvelope(MessageKind::kSwitchPlan, Here(kControlLane), next));
  }

  void OnRecovered(const std::string& body) {
    wire::Recovered recovered;
    if (!recovered.ParseFromString(body)) return;
    Show(report_.OnRecovered(recovered));
    balancer_.Forget();
    if (monitor_ != nullptr) monitor_->tracker().OnRecovered(recovered);
  }

  void OnFinished(const std::string& body) {
    wire::WorkerReport worker;
    if (!worker.ParseFromString(body)) return;
    report_.OnFinished(worker);
    if (monitor_ != nullptr) monitor_->tracker().OnFinished(worker);
  }

  ZmqRuntime& runtime_;
  const Job& job_;
  JournalWriter journal_;
  JobMonitor* monitor_;  // null: there is none
  JobReport report_;
  BatchBalancer balancer_;
  BackgroundReplan replan_;
  std::optional<InputLines> launcher_;
  wire::PlanAndModel plan_;  // the latest
  bool shows_joining_ = true;
};

// What the job's next scheduler is to know is written down where the job survives this one and
// there is a place for it.
std::unique_ptr<Journal> OpenJournal(const JobConfig& config) {
  if (config.job.recovery().mode() == Recovery::NONE) return nullptr;
  if (FLAGS_out.empty()) {
    LOG(WARNING) << "without --out there is no journal, and the job can't go on when this "
                    "scheduler is lost";
    return nullptr;
  }
  const std::string path = FLAGS_out + "/" + kJournalFile;
  auto journal = std::make_unique<Journal>(
      path, Journal::Owner{DrawRandom(), config.fingerprint, config.job.name()});
  TellOfPast(*journal, path);
  return journal;
}

std::unique_ptr<JobMonitor> OpenMonitor(const Job& job) {
  if (!job.has_monitor()) return nullptr;
  auto monitor = std::make_unique<JobMonitor>(job, FLAGS_out);
  Show("monitor: " + monitor->url());
  return monitor;
}

// If the job has ended badly, or wants a trace.
void WriteEvents(const Job& job, const wire::End& end, EventWriter& events) {
  const int code = end.job_exit_code() != 0 ? end.job_exit_code() : end.exit_code();
  if (code == 0 && !job.training().trace()) return;
  // Who is silent was told of the end, too: whether its machine has confirmed that is evidence.
  const bool lost = code == static_cast<int>(ExitCode::kPeerLost);
  if (lost) std::this_thread::sleep_for(kConfirmationTime);
  events.Write(static_cast<ExitCode>(code), end.reason());
}

// It tells of another job's end to whoever asks for this one's. Whoever has come so far has the
// port that the job's nodes ask: nobody else runs the job.
void RemoveEarlierSummary() {
  std::error_code ignored;  // the next one replaces it, too
  if (!FLAGS_out.empty()) std::filesystem::remove(FLAGS_out + "/summary.json", ignored);
}

void WriteSummary(const std::string& summary, const wire::End& end) {
  try {
    WriteFileAtomically(FLAGS_out + "/summary.json", summary);
  } catch (const Error& error) {
    if (end.exit_code() == 0) throw;
    // Perhaps the job has ended for the same cause; why it did says more.
    LOG(ERROR) << error.what();
  }
}

ExitCode Run() {
  const BoundedOutput output(std::cout, STDOUT_FILENO);
  const JobConfig config = ReadJobConfig(FLAGS_config);
  if (!FLAGS_out.empty()) MakeDirectories(FLAGS_out);
  Interruption interruption({ParseSignalEffect("sigint_effect", FLAGS_sigint_effect),
                             ParseSignalEffect("sighup_effect", FLAGS_sighup_effect)});
  const std::unique_ptr<Journal> journal = OpenJournal(config);
  const std::unique_ptr<JobMonitor> monitor = OpenMonitor(config.job);

  AwaitSchedulerName(config.job.cluster(), [&] {
    const auto request = interruption.TakeRequest();
    const bool stops = request && request->effect == SignalEffect::kStop;
    if (stops || interruption.Pending()) throw Interrupted();
  });
  ZmqOptions options = NodeZmqOptions(config.job, config.job.cluster().scheduler_host());
  options.data_lanes = 0;
  ClaimSchedulersFiles(config.job);
  options.control_port = config.job.cluster().scheduler_port();
  options.heartbeat_port = config.job.cluster().scheduler_port() + 1;
  ZmqRuntime runtime({Role::kScheduler, 0}, options);
  const Cluster& cluster = config.job.cluster();
  const bool host_is_own = IsOwnAddress(cluster.scheduler_host());
  SchedulerOptions scheduler;
  scheduler.job = WithoutKey(config.job);
  scheduler.job_fingerprint = config.fingerprint;
  scheduler.planner = PlanByTrial;
  scheduler.epoch = journal ? journal->state().base : DrawRandom();
  scheduler.host_is_own = host_is_own;
  // A node on this machine is called by the address from which it speaks to the scheduler, if by
  // nothing else.
  if (host_is_own) {
    scheduler.own_hosts = {cluster.scheduler_host(), ResolveHost(cluster.scheduler_host()),
                           "localhost", "127.0.0.1", "::1"};
  }
  scheduler.launched = FLAGS_launched;
  if (journal) scheduler.journal = journal->state();
  runtime.Attach(kControlLane, MakeScheduler(std::move(scheduler)));
  EventWriter events(runtime, config.job.cluster().scheduler_host(), FLAGS_out);
  RemoveEarlierSummary();
  // It reads again what a long job has written down, which the nodes are not to wait for once they
  // are heard.
  JobWatch watch(runtime, config.job, journal.get(), monitor.get());
  runtime.Start();
  LOG(INFO) << "waiting for " << cluster.workers() << " worker(s) and " << cluster.servers()
            << " server(s) at "
            << (host_is_own ? runtime.endpoint(kControlLane)
                            : "port " + std::to_string(cluster.scheduler_port()));
  if (!host_is_own) {
    LOG(WARNING)
        << "cluster.scheduler_host, \"" << cluster.scheduler_host()
        << "\", is no address of this machine; unless the network translates it to one, no "
           "node finds this scheduler: name this machine in the config, or start the "
           "scheduler there";
  }

  const wire::End end = watch.Run(interruption);
  const JobReport& report = watch.report();
  WriteEvents(config.job, end, events);
  runtime.Stop();
  if (!FLAGS_out.empty()) WriteSummary(report.Json(config.job.name(), end), end);
  // Where the nodes have ended well, the job may still have been stopped.
  const int code = end.exit_code() != 0 ? end.exit_code() : end.job_exit_code();
  if (code != 0 && end.exit_code() == 0) Show("training has ended early: " + end.reason());
  if (code != 0) throw Error(static_cast<ExitCode>(code), "the job has ended: " + end.reason());
  Show(report.Closing());
  return ExitCode::kSuccess;
}

}  // namespace
}  // namespace poseidon

int main(int argc, char** argv) {
  poseidon::ReadOwnFlags(
      "The scheduler of a job: gathers its nodes, plans how each layer is synchronized, watches "
      "that all live, and reports.\n\n  poseidon_scheduler --config=job.prototxt [--out=DIR]",
      __FILE__, &argc, &argv);
  return poseidon::RunProgram("poseidon_scheduler", argv[0], poseidon::Run);
}
