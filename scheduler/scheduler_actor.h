// The scheduler's control actor: leads a job from the gathering of its nodes to its end.
//
//   gathering   nodes register; when all are there the view goes out
//   declaring   every worker declares the model and what files it has found; when all have (and
//               agree) the plan goes out
//   preparing   nodes make their memory; when all are ready the start goes out
//   training    workers report progress; a loss or stall ends the job, and so does its end: badly
//   if
//               the workers' parameters differ
//   agreeing    another plan is to be used: every worker offers an iteration to pause before; the
//               latest goes out
//               (or, for a stop: training, which ends before that iteration)
//   pausing     workers come to it; when all have, the new plan goes out: preparing, training
//   holding     a node is lost and the job recovers: the surviving workers stop the exchange and
//   say
//               what they have
//   regrouping  other processes take the lost ranks; when all are there a new view goes out, and a
//               plan that begins where all can go back to: preparing, training
//   ended       the end has been sent to everybody
//
// Each phase but training has a deadline that names who is missing; in training heartbeats and the
// servers' and workers' stall reports do, and a notice tells of workers that all work at one
// iteration for long. The application lane hears kJoined (wire::View), kPlan (wire::PlanAndModel)
// for each plan, kNotice, kProgress and kFinished as they come (with `rank` filled in; -1 is the
// scheduler itself), kLayerTimes once at most (the mean over the job's workers, when all that it
// has then have measured), kRecovered (wire::Recovered) when the job goes on after a loss,
// kJobPhase (wire::JobPhase) and kOverdue (wire::Silent: all whose heartbeats are overdue) whenever
// that has changed in a job with a monitor, kJournal (wire::JournalRecord) if the job is to survive
// its scheduler, and kEnd (wire::End) exactly once. It may send kSwitchPlan (wire::PlanAndModel,
// the same model) during bulk-synchronous training; nothing comes of it when a switch is already
// going on, or the training ends before. It may send kAskSnapshot and kStopTraining at any time,
// and kLostProcess.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/arithmetic/update_rule.h"
#include "core/error.h"
#include "planner/job_plan.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"
#include "scheduler/agreement/input_agreement.h"
#include "scheduler/declarations.h"
#include "scheduler/iteration_counts.h"
#include "scheduler/journal/job_state.h"
#include "scheduler/layer_times_mean.h"
#include "scheduler/recovery_round.h"
#include "scheduler/report/job_traffic.h"
#include "scheduler/roster.h"
#include "scheduler/spares.h"
#include "scheduler/stall_reports.h"
#include "scheduler/stragglers/quiet_watch.h"
#include "transport/actor.h"
#include "transport/membership/heartbeat.h"

namespace poseidon {

struct SchedulerOptions {
  Job job;                       // checked
  uint64_t job_fingerprint = 0;  // of the config that nodes must share
  std::string build;             // that nodes must be of; empty: of any
  uint64_t epoch = 1;            // of the first view; random, never 0
  // Whether cluster.scheduler_host names the machine that the scheduler runs on.
  bool host_is_own = true;
  // What nodes may call that machine (Node.host).
  std::set<std::string> own_hosts;
  // Whether a program has started the nodes, which then run or have ended.
  bool launched = false;
  // What the application has written down of earlier schedulers of the job; the term of the one
  // before is -1 if there was none, and the epoch counts then. nullopt: nothing is written down.
  std::optional<JobState> journal;
  // Whether the log says who has joined; of simulated nodes that is no news.
  bool logs_members = true;
  // Makes the job's plans.
  JobPlanner planner = [](const InformationBook& book, const Job& planned) {
    return PlanJob(book, planned);
  };
};

// The scheduler's control actor, with a JournalGate around it if there is a journal.
std::unique_ptr<Actor> MakeScheduler(SchedulerOptions options);

class SchedulerActor : public Actor {
 public:
  explicit SchedulerActor(SchedulerOptions options);
  void OnStart(Outbox& outbox) override;
  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

 private:
  static constexpr TimerId kPhaseDeadline = 1;
  static constexpr TimerId kDropSilent = 2;
  static constexpr TimerId kStallsCollected = 3;
  static constexpr TimerId kRepeatRecovery = 4;
  static constexpr TimerId kRegroup = 5;
  static constexpr TimerId kLookForProgress = 6;

  // What to go over to, and the first iteration under it, as far as is known.
  struct Switch {
    wire::PlanAndModel plan;
    int64_t start = 0;
    bool members = false;  // the workers change, and the plan is made when they have paused
  };

  enum class Phase {
    kGathering,
    kDeclaring,
    kPreparing,
    kTraining,
    kAgreeing,
    kPausing,
    kHolding,
    kRegrouping,
    kEnded,
  };

  // scheduler_adoption.cc. Goes on with the job of an earlier scheduler, from where that was.
  void TakeOver(Outbox& outbox);
  void RestoreState(const JobState& past, Outbox& outbox);
  // The nodes get the last plan once more; those that have it say that they are ready.
  void AdoptPlan(const JobState& past, Outbox& outbox);
  void HoldAgain(const JobState& past, Outbox& outbox);
  void ContinueRound(const JobState& past, Time now);
  // Takes the job over from itself, after other machines were beyond reach.
  void ResumeTraining(Outbox& outbox);
  // Has a record written down before anything is sent that comes after it.
  void Write(const wire::JournalRecord& record, Outbox& outbox) const;
  void WritePause(Outbox& outbox) const;
  void WriteView(Outbox& outbox) const;
  // The exchange is about to be held, as these were lost or have left, or for another cause.
  void WriteHold(const std::vector<NodeId>& lost, const std::vector<NodeId>& left,
                 const std::string& cause, Outbox& outbox) const;
  // A worker is about to leave or, after all, `stays`.
  void WriteLeave(const NodeId& worker, bool stays, Outbox& outbox) const;

  void HandleMessage(const Envelope& envelope, Outbox& outbox);
  void HandleTimer(TimerId timer, Outbox& outbox);
  // scheduler_registration.cc
  void OnRegister(const Envelope& envelope, Outbox& outbox);
  void OnDeclareModel(const Envelope& envelope, Outbox& outbox);
  void OnLinkReport(const Envelope& envelope, Outbox& outbox);
  // Makes the first plan if everything that it needs is there, after more has come of a worker.
  void TryFirstPlan(const NodeId& worker, Outbox& outbox);
  // After a loss in the declaring phase: who has declared need not do it again.
  void CountDeclared(Outbox& outbox);
  // A worker that has taken a lost one's rank declares what the others have.
  void CheckModel(const Envelope& envelope, Outbox& outbox);
  void OnReady(const Envelope& envelope, Outbox& outbox);
  // All are ready.
  void StartTraining(Outbox& outbox);
  void SendStart(const NodeId& node, Outbox& outbox) const;
  void OnProgress(const Envelope& envelope, Outbox& outbox);
  // Tells of a training in which no worker gets on, and none waits for another with a deadline.
  void LookForProgress(Outbox& outbox);
  void OnLayerTimes(const Envelope& envelope, Outbox& outbox);
  static void TellLayerTimes(const std::optional<wire::LayerTimes>& mean, Outbox& outbox);
  void OnSwitchPlan(const Envelope& envelope, Outbox& outbox);
  void OnPauseOffer(const Envelope& envelope, Outbox& outbox);
  // A worker offers again once it has been answered: the answer was lost with a connection.
  void AnswerOfferAgain(const NodeId& worker, Outbox& outbox);
  void OnPaused(const Envelope& envelope, Outbox& outbox);
  void OnFinished(const Envelope& envelope, Outbox& outbox);
  void OnNotice(const Envelope& envelope, Outbox& outbox);
  void OnFailed(const Envelope& envelope, Outbox& outbox);
  void OnStop(const Envelope& envelope, Outbox& outbox);
  void OnStalled(const Envelope& envelope, Outbox& outbox);
  // With staleness the last exchange takes as long as the slowest worker has left to compute:
  // whether all workers have waited for it too long just now, so that a frame of theirs must be
  // lost. Where one has finished, the others have the phase's deadline. `node` is one that waits.
  bool AllAwaitTheLast(const NodeId& node, Time now);
  Duration StallCollection() const;
  // scheduler_requests.cc. Whether the first training has begun.
  bool HasBegun() const { return last_progress_ != Time{}; }
  void OnAskSnapshot(Outbox& outbox);
  // The first of the plan's workers, and it is to write one.
  NodeId SnapshotWriter() const;
  void RequestSnapshot(Outbox& outbox);
  void OnStopTraining(Outbox& outbox);
  // Why all workers can't stop before the same iteration; empty if they can.
  std::string WhyStopsAtOnce() const;
  // If a stop is wanted and training goes on, workers are asked before which iteration they can.
  void AgreeOnStop(Outbox& outbox);
  void StopAt(int64_t iteration, Outbox& outbox);
  void SendStop(const NodeId& worker, Outbox& outbox);
  // A worker has finished while others agreed on where to pause or stop: nobody does before the
  // end.
  void StopAtEnd(Outbox& outbox);
  // All workers have finished, at the training's end or where they stopped.
  void EndFinished(Outbox& outbox);
  // The stall report that names who holds up the rest ends the job, or has the exchange begin anew.
  void EndStalled(Outbox& outbox);
  // The exchange waits for these nodes: it begins anew, without those for whom it has waited
  // before.
  void BeginAnew(const std::vector<NodeId>& awaited, const std::string& reason, Outbox& outbox);
  // The phase has taken too long: the job ends, or goes on without those who are late.
  void OnPhaseDeadline(Outbox& outbox);
  // A worker that has ended its training while another goes on ends the job.
  void EndUneven(Outbox& outbox);
  void OnSilent(const Envelope& envelope, Outbox& outbox);
  void OnCutOff(const Envelope& envelope, Outbox& outbox);
  // Whether the nodes of all other machines may be beyond reach, and so can't answer.
  bool IsCutOff() const {
    return cut_off_ == wire::CutOff::SUSPECTED || cut_off_ == wire::CutOff::CUT_OFF;
  }
  // The launcher has seen that a node's process is gone, and starts no other: the job ends.
  void OnLostProcess(const Envelope& envelope, Outbox& outbox);
  // A registration after the end: the end has not reached the node, or it has come too late.
  void AnswerAfterEnd(const wire::Register& request, Outbox& outbox);
  // The roster has admitted a node, now or before.
  void Admit(const Roster::Answer& answer, Outbox& outbox);
  // Epoch 0: admitted, wait for the others. The rank is not `known` until all are there, unless the
  // node wants a certain one.
  static void TellRank(const NodeId& node, bool known, Outbox& outbox);
  // A registration after the view is complete, of somebody who may take a lost one's rank. True if
  // there is nothing more to do about it. `late`: ComesTooLate.
  bool OnLateRegister(const wire::Register& request, bool late, Outbox& outbox);
  // Who was started in a dead one's place tells of that death.
  void TakeWordOfDeath(const wire::Register& request, Outbox& outbox);
  // Perhaps it was started for one that has died: while nodes gather, nobody else says so. True if
  // it is to ask again.
  bool AwaitsHolder(const wire::Register& request, Time now);
  // Whether it was started in place of a process whose rank another one has by now.
  bool ComesTooLate(const wire::Register& request) const;
  // All nodes of the roster are the view of this number from now on.
  void MakeView(int32_t number, Outbox& outbox);

  // scheduler_recovery.cc. Whether a loss now is recovered.
  bool Recovers() const;
  // `silent`: since they were last heard, where that is known.
  void Lose(const std::vector<NodeId>& nodes, const std::string& cause, Duration silent,
            Outbox& outbox);
  // Nobody is lost, and still it does not go on, for so long.
  void Hang(const std::string& cause, Duration silent, Outbox& outbox);
  void BeginHold(Outbox& outbox);
  // Whether all that are left have stopped the exchange, of those that are asked to.
  bool AllHeld() const;
  bool IsHeld(const NodeId& node) const;
  // Says again what recovery waits for an answer to.
  void RepeatRecovery(Outbox& outbox);
  void OnHoldings(const Envelope& envelope, Outbox& outbox);
  void TryRegroup(Outbox& outbox);
  void TryGoOn(Outbox& outbox);
  // scheduler_shrink.cc. Whether the job goes on at once without those that are lost.
  bool Shrinks() const { return options_.job.recovery().mode() == Recovery::SHRINK; }
  // The ranks that are missing are wanted no more, as far as the job can do without.
  void Shrink(Outbox& outbox);
  // A server has come: where all were lost, the ranks of the others are wanted no more.
  void ShrinkToServer(Outbox& outbox);
  // Nobody has taken the lost ranks in time: whether the job goes on without them.
  bool ShrinksAtLast(Outbox& outbox);
  // scheduler_elastic.cc
  bool IsElastic() const { return options_.job.has_elastic(); }
  // Throws ConfigError if the rate is to change with the workers and is the program's.
  void CheckRate(const UpdateRule& rule) const;
  int MostWorkers() const;
  // Of a worker itself, and of who is no node of the job.
  void OnLeave(const Envelope& envelope, Outbox& outbox);
  void OnLeaveRequest(const Envelope& envelope, Outbox& outbox);
  // Why the worker can't leave; otherwise, and from now on, it is about to.
  std::optional<std::string> LetLeave(const NodeId& worker, Outbox& outbox);
  // Whether processes have ranks that are not of the view yet.
  bool HasNewcomers() const;
  // If somebody wants to come or to leave, and training goes on, the workers are asked to pause.
  void TryChangeMembers(Outbox& outbox);
  // Others may have been lost since workers were let go: those that the job can't do without stay.
  void KeepMinWorkers(Outbox& outbox);
  // All workers have paused.
  void ChangeMembers(Outbox& outbox);
  // What a worker is told that has left; `when`: "", or behind a space.
  static wire::End EndOfLeaver(const std::string& when);
  // scheduler_registration.cc. The process is one that waits to take a lost one's rank.
  bool KeepsAsSpare(const wire::Register& request, Outbox& outbox);
  // The ranks that are missing are those of spares from now on, as far as there are any.
  void FillWithSpares(Outbox& outbox);
  // The job's end as it is told to who is not in it.
  static wire::End ForNewcomer(wire::End end);
  // Tells those that the job has not needed of its end: spares, and workers that have come too
  // late.
  void EndNewcomers(const wire::End& end, Outbox& outbox) const;
  // Backups, if the plan has any, keep to other machines than the owners', if there are any.
  void PlaceBackupsOnHosts(Plan& plan, Outbox& outbox);
  // The plan to go on with from the cut: the last one, or one for those that are left.
  wire::PlanAndModel NextPlan(const Cut& cut) const;
  // Of the view.
  std::set<int> RanksOf(Role role) const;
  int Workers() const { return static_cast<int>(RanksOf(Role::kWorker).size()); }
  // Who has been lost more often in a row than recovery.give_up_after allows.
  std::optional<NodeId> LostTooOften() const;
  // Training is about to begin; what there is to tell if that ends a recovery.
  std::optional<wire::Recovered> FinishRecovery(Outbox& outbox);
  void Tell(const std::string& text, Outbox& outbox);
  // Plans the declared model.
  void MakeFirstPlan(Outbox& outbox);
  // To all nodes, who are to prepare for it.
  void SendPlan(const wire::PlanAndModel& plan, Outbox& outbox);
  void Refuse(const wire::Node& node, const std::string& reason, Outbox& outbox,
              ExitCode code = ExitCode::kRefused);
  // Whether the process is one that can be a node, and says where it is.
  static bool CanBeAnswered(const wire::Node& guest);
  // To who is no member.
  void Answer(const wire::Node& guest, MessageKind kind, const wire::End& end, Outbox& outbox);
  // One that no node can have, so that its route disturbs nobody. Guests take turns: under one
  // address an answer would be lost with the next one's route, if it has not left by then.
  Address GuestAddress(const wire::Node& guest);
  void End(ExitCode code, const std::string& reason, Outbox& outbox);
  void End(const wire::End& end, Outbox& outbox);
  void EnterPhase(Phase phase, Outbox& outbox);
  // To a node's control lane, under the view.
  Envelope ToNode(MessageKind kind, const NodeId& node, const Payload& body) const;
  // To all nodes of the view.
  void Broadcast(MessageKind kind, const Payload& body, Outbox& outbox);
  void BroadcastToWorkers(MessageKind kind, int64_t iteration, Outbox& outbox);
  // The number of plan_: what `ready`, `start` and `paused` belong to.
  uint32_t PlanNumber() const { return static_cast<uint32_t>(plan_.plan().number()); }
  // A worker has done its part in the phase; true if it was the last one.
  bool CountWorker(const Envelope& envelope);
  // Nodes that joined and went away again are forgotten until the view is complete.
  void DropSilentNodes(Outbox& outbox);
  // Who has not done what the present phase waits for, when its deadline has passed.
  std::string WhatIsLate() const;
  // Those that the present recovery goes on without.
  std::string LostNames() const;
  // Whether a training can come so far: as far as a double counts exactly, which summary.json does;
  // 285 years at a microsecond each. With what a worker says beyond that nothing may be computed.
  static bool IsIteration(int64_t number) { return number >= 0 && number <= int64_t{1} << 53; }
  // A worker has done an iteration.
  void CountProgress(int64_t iteration, Time now);
  // An iteration was done: losses before are not in a row with those of the present recovery, if
  // there is one.
  void ForgetEarlierLosses();
  // scheduler_phase.cc. For a monitor, where the job stands, if that is news.
  void TellPhase(Outbox& outbox);
  wire::JobPhase DescribePhase() const;
  static const char* NameOf(Phase phase);
  // Whom of the view the phase waits for.
  std::vector<NodeId> Awaited() const;
  // How long a phase may take; nullopt: any time.
  std::optional<Duration> DeadlineOf(Phase phase) const;
  Duration StallDeadline() const;
  Duration JoinDeadline() const { return Seconds(options_.job.cluster().join_deadline_seconds()); }
  static std::string SecondsText(Duration duration);
  // "worker 1 (host, process 7), server 0 (host, process 8)" of those in the view that are not in
  // `present`.
  std::string MissingFrom(const std::set<NodeId>& present, bool servers_too) const;

  SchedulerOptions options_;
  HeartbeatTiming timing_;
  Roster roster_;
  Spares spares_;
  Phase phase_ = Phase::kGathering;
  int32_t view_number_ = 0;  // of the present view, or of the first
  wire::View view_;
  Payload view_body_;         // view_ serialized, for all; empty before it is complete
  std::set<NodeId> members_;  // of the view
  // Who has declared, is ready, has finished: of the current phase.
  std::set<NodeId> answered_;
  Declarations declarations_;  // until there is a plan
  size_t declared_hash_ = 0;   // of the model as it was declared; a plan may have times added to it
  WorkerInputs declared_inputs_;  // of one worker, WithoutStart
  wire::PlanAndModel plan_;
  Payload plan_body_;  // plan_ serialized; empty before there is one
  LayerTimesMean times_;
  Switch next_;
  bool stop_wanted_ = false;  // a signal has asked for the training's end
  // Before which iteration the workers of the present plan have been told to stop.
  std::optional<int64_t> stop_at_;
  // The iteration that the writer does not end before it has written the snapshot that is wanted.
  std::optional<int64_t> snapshot_by_;
  StallReports stalls_;
  std::map<int, Time> awaits_the_last_;  // by rank: when it said so last
  IterationCounts iteration_counts_;
  WorkerReports finished_;  // without the traffic, which is the program's
  RecoveryRound round_;
  // An earlier scheduler's nodes have not all said yet that they are ready; and whether they were
  // training.
  bool taking_over_ = false;
  bool was_training_ = false;
  // Since training was last started, programs may have begun to load what a plan starts with.
  bool programs_load_ = false;
  // The first iteration of which an earlier scheduler has not heard from all; then the first that
  // workers are to tell of again, if they have done it.
  std::optional<int64_t> unreported_;
  int64_t report_from_ = 0;
  std::array<std::string, kGuests> guests_;  // the endpoints of those that were answered last
  int next_guest_ = 0;                       // whose place the next one takes
  std::set<NodeId> leaving_;                 // who is about to leave
  std::set<uint64_t> left_;                  // incarnations of those that have left
  std::set<NodeId> hung_;                    // whom the exchange waited for when it hung last
  // How often each rank has been lost since the last iteration was done.
  std::map<NodeId, int> losses_without_progress_;
  int64_t first_iteration_ = 0;  // of the training
  int64_t reached_ = 0;          // iterations that some worker has done
  wire::CutOff::State cut_off_ = wire::CutOff::HEARD;
  bool cut_off_in_view_ = false;  // at some time
  std::string told_phase_;        // the last wire::JobPhase, serialized
  std::optional<wire::End> end_;  // in kEnded
  Time last_start_{};             // when the present plan's training began
  Time last_progress_{};          // when one has done one; at first when training began
  QuietWatch quiet_;              // of iterations and tests that workers tell of
};

}  // namespace poseidon
