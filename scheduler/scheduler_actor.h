// The scheduler's control actor: leads a job from the gathering of its nodes to its end.
//
//   gathering   nodes register; when all are there the view goes out
//   declaring   every worker declares the model; when all have (and agree) the plan goes out
//   preparing   nodes make their memory; when all are ready the start goes out
//   training    workers report progress; a loss or stall ends the job
//   ended       the end has been sent to everybody
//
// Each phase but training has a deadline that names who is missing; in training heartbeats and the
// servers' and workers' stall reports do. The application lane hears kJoined (wire::View), kPlan
// (wire::PlanAndModel), kProgress and kFinished as they come (with `rank` filled in), and kEnd
// (wire::End) exactly once.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "core/error.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"
#include "scheduler/roster.h"
#include "transport/actor.h"
#include "transport/heartbeat.h"

namespace poseidon {

struct SchedulerOptions {
  Job job;                       // checked
  uint64_t job_fingerprint = 0;  // of the config that nodes must share
  uint64_t epoch = 1;            // of the first view; random, never 0
};

class SchedulerActor : public Actor {
 public:
  explicit SchedulerActor(SchedulerOptions options);
  void OnStart(Outbox& outbox) override;
  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

 private:
  enum class Phase { kGathering, kDeclaring, kPreparing, kTraining, kEnded };

  void OnRegister(const Envelope& envelope, Outbox& outbox);
  void OnDeclareModel(const Envelope& envelope, Outbox& outbox);
  void OnReady(const Envelope& envelope, Outbox& outbox);
  void OnFinished(const Envelope& envelope, Outbox& outbox);
  void OnFailed(const Envelope& envelope, Outbox& outbox);
  void OnStop(const Envelope& envelope, Outbox& outbox);
  void OnStalled(const Envelope& envelope, Outbox& outbox);
  void OnSilent(const Envelope& envelope, Outbox& outbox);
  void CompleteView(Outbox& outbox);
  void SendPlan(Outbox& outbox);
  void Refuse(const wire::Node& node, const std::string& reason, Outbox& outbox);
  void End(ExitCode code, const std::string& reason, Outbox& outbox);
  void EnterPhase(Phase phase, Outbox& outbox);
  // To a node's control lane, under the view.
  Envelope ToNode(MessageKind kind, const NodeId& node, const Payload& body) const;
  // To all nodes of the view.
  void Broadcast(MessageKind kind, const Payload& body, Outbox& outbox);
  Duration JoinDeadline() const { return Seconds(options_.job.cluster().join_deadline_seconds()); }
  // "worker 1 (host:pid) and server 0 (host:pid)" of those in the view that are not in `present`.
  std::string MissingFrom(const std::set<NodeId>& present, bool servers_too) const;

  SchedulerOptions options_;
  HeartbeatTiming timing_;
  Roster roster_;
  Phase phase_ = Phase::kGathering;
  wire::View view_;
  // Who has declared, is ready, has finished: of the current phase.
  std::set<NodeId> answered_;
  std::map<NodeId, std::string> declared_;  // serialised models
  Payload plan_;                            // serialised; empty before there is one
};

}  // namespace poseidon
