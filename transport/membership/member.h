// Member: a server's or worker's half of the membership protocol, from asking to be admitted to the
// end of the job. Control actors of servers and workers hold one and hand it what they do not
// handle themselves.
//
// The application lane hears kJoined (wire::View, without the nodes) once all nodes are there,
// again whenever a later view has taken the place of the one before (another process has a lost
// one's rank), the scheduler has another address, or a connection to it was lost, and kEnd
// (wire::End) when it is over, exactly once, whatever the cause: the scheduler said so, did not
// answer, refused, or fell silent.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/time.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"
#include "transport/actor.h"
#include "transport/membership/heartbeat.h"
#include "transport/membership/scheduler_address.h"
#include "transport/membership/shared_messages.h"

namespace poseidon {

struct MemberOptions {
  Role role = Role::kWorker;
  int wanted_rank = -1;  // -1: whichever is free
  std::string host;      // of this process, as people and peers know it
  int64_t pid = 0;
  std::vector<std::string> endpoints;  // by lane
  std::string scheduler;               // what messages call it: "tcp://node0:9700"
  std::string scheduler_control_endpoint;
  std::string scheduler_heartbeat_endpoint;
  // Asked while the scheduler is silent, and when another one has taken its place; null where its
  // address stays.
  std::shared_ptr<SchedulerAddress> scheduler_address;
  uint64_t incarnation = 0;      // random, drawn by the program
  uint64_t job_fingerprint = 0;  // of the job config
  // That config, for a refusal that says what differs; null where nobody will read it.
  std::shared_ptr<const Job> job;
  // BuildIdentity() of this program; empty where all nodes are one process.
  std::string build;
  uint64_t replaces = 0;  // incarnation of the dead process whose place it takes; 0: none
  // Where the job goes on after a loss: how long this node asks a scheduler that is silent whether
  // it still belongs to the job. nullopt: not at all.
  std::optional<Duration> scheduler_deadline;
  Duration join_deadline = Seconds(60);
  HeartbeatTiming heartbeat;
  // What all nodes of a simulation share; null in a daemon. A simulated node does not warn of a
  // scheduler that is silent: its seconds are not the user's, who has no scheduler to look at.
  std::shared_ptr<SharedMessages> shared;
};

// "worker 2 (node7, process 4711)"
std::string Describe(const wire::Node& node);
NodeId IdOf(const wire::Node& node);
// The node of a view, or one with just role and rank if the view has none.
wire::Node FindNode(const wire::View& view, const NodeId& id);
// The reason as it may be shown: `core/text/utf8.h`.
wire::End MakeEnd(ExitCode code, const std::string& reason);
// What an envelope for the application says of the job's bad end, or of an actor's of this node;
// nullopt: nothing of the kind.
std::optional<Error> FailureIn(const Envelope& envelope);

class Member {
 public:
  explicit Member(MemberOptions options) : options_(std::move(options)) {}

  void Start(Outbox& outbox);
  // Handles kView, kRefused, kEnd, kPeerSilent, kConnectionLost, and forwards kLaneStalled to the
  // scheduler as kStalled; ignores others.
  void OnMessage(const Envelope& envelope, Outbox& outbox);
  void OnTimer(TimerId timer, Outbox& outbox);

  // Whether the view is complete; epoch() and self() are valid from then on.
  bool joined() const { return joined_; }
  bool ended() const { return ended_; }
  uint64_t epoch() const { return epoch_; }
  // The epoch of the job's first view: data frames carry it plus the plan's number.
  uint64_t base() const { return base_; }
  NodeId self() const { return {options_.role, rank_}; }

  // Whether an envelope is the scheduler's, of the current view.
  bool FromOwnScheduler(const Envelope& envelope) const;
  // Tells data lanes that training starts.
  void StartLanes(int lanes, Outbox& outbox) const;
  // An envelope to the scheduler's control lane under the current epoch.
  Envelope ToScheduler(MessageKind kind) const;
  // Tells the application that the job is over. Only the first call has an effect.
  void End(const wire::End& end, Outbox& outbox);

 private:
  void SetSchedulerRoutes(Outbox& outbox) const;
  // Has the scheduler's name looked up, and goes where it leads.
  void LookUpScheduler(Outbox& outbox);
  void FollowScheduler(Outbox& outbox);
  bool waits_for_scheduler() const { return (!joined_ || orphaned_) && !ended_; }
  void SendRegister(Outbox& outbox);
  void SetRegisterTimer(Outbox& outbox) const;
  // Logs, ever more rarely, that nobody has answered yet.
  void WarnOfSilence(Time now);
  void OnViewMessage(const Envelope& envelope, Outbox& outbox);
  void OnView(const ViewAndRoutes& answer, Outbox& outbox);
  // Whether a view is of this job and takes the place of the present one.
  bool IsLater(const wire::View& view) const;
  void TellJoined(Outbox& outbox) const;
  void GiveUpWaiting(Duration waited, Outbox& outbox);
  // The scheduler was there, and is beyond reach now.
  void OnConnectionLost(const Envelope& envelope, Outbox& outbox);
  void OnEnd(const Envelope& envelope, Outbox& outbox);
  void OnSilentScheduler(const Envelope& envelope, Outbox& outbox);
  bool FromScheduler(const Envelope& envelope) const;

  MemberOptions options_;
  int rank_ = -1;       // -1 before the scheduler has given one
  uint64_t epoch_ = 0;  // 0 before the view is complete
  uint64_t base_ = 0;   // likewise
  bool admitted_ = false;
  bool joined_ = false;
  bool orphaned_ = false;  // has joined, and the scheduler is silent
  bool ended_ = false;
  std::weak_ptr<const Departure> registration_;  // the last one's, while it is in this node
  Time last_answer_{};
  Time last_look_up_{};
  Duration next_warning_ = Seconds(5);  // of silence
};

}  // namespace poseidon
