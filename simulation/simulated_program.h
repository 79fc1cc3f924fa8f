// The programs around a node's actors, as actors on its application lane: what the daemons' main
// functions are to ZmqRuntime. The worker's is simulation/simulated_trainer.h.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/time.h"
#include "proto/journal.pb.h"
#include "proto/wire.pb.h"
#include "transport/actor.h"

namespace poseidon {

// What became of a simulated process.
struct NodeRecord {
  NodeId id;           // the rank it asked for; once it has joined the rank it has
  uint64_t epoch = 0;  // of its view; 0 before it has joined
  bool killed = false;
  // Why it ended, and when; not set if it was killed before.
  std::optional<wire::End> end;
  Time ended{};
};

// What all programs have in common: they learn who they are, and end with the job or by their own
// failure, of which they tell the scheduler.
class ProgramFrame {
 public:
  // `record` outlives the program. `on_end` is called once, when the record has its end.
  ProgramFrame(NodeRecord* record, std::function<void()> on_end)
      : record_(record), on_end_(std::move(on_end)) {}

  // Handles kJoined, kEnd and kFailed; ignores others.
  void OnMessage(const Envelope& envelope, Outbox& outbox);
  // What the program itself has failed by.
  void Fail(const Error& error, Outbox& outbox);
  bool ended() const { return record_->end.has_value(); }
  const NodeRecord& record() const { return *record_; }

 private:
  void End(const wire::End& end, Time now);

  NodeRecord* record_;
  std::function<void()> on_end_;
};

// poseidon_server's.
class SimulatedServer : public Actor {
 public:
  explicit SimulatedServer(ProgramFrame frame) : frame_(std::move(frame)) {}
  void OnMessage(const Envelope& envelope, Outbox& outbox) override {
    frame_.OnMessage(envelope, outbox);
  }

 private:
  ProgramFrame frame_;
};

// What the scheduler's program has heard.
struct SchedulerRecord {
  std::optional<wire::PlanAndModel> plan;     // the last one
  std::optional<wire::LayerTimes> times;      // mean over the workers
  std::map<int, wire::WorkerReport> reports;  // by the worker's rank
  int64_t progress_messages = 0;
  std::vector<wire::Recovered> recoveries;
  std::vector<wire::LinkReport> links;
  std::vector<std::string> notices;  // lines for the user
  // By iteration: the ranks of the workers that said how it went; in jobs that keep a journal.
  std::map<int64_t, std::set<int>> reported;
  // What the schedulers of the job have written down, one after the other.
  std::vector<wire::JournalRecord> journal;
};

// A plan to go over to instead of the current one, from the measured times; nullopt: none.
using Replanner = std::function<std::optional<wire::PlanAndModel>(const wire::PlanAndModel& current,
                                                                  const wire::LayerTimes& times)>;

// What a scheduler's journal is on.
struct SimulatedDisk {
  Duration delay{};  // until a record is written
  // It says that a record is written at once.
  bool lies = false;
  // What comes from this time on is never written, and nobody hears why.
  std::optional<Time> hangs_from{};
};

// poseidon_scheduler's.
class SimulatedScheduler : public Actor {
 public:
  // `record` outlives the actor. `replan` may be empty. `workers`: of a job that keeps a journal,
  // as it begins or goes on; 0 of others, whose iterations are not recorded.
  SimulatedScheduler(ProgramFrame frame, SchedulerRecord* record, Replanner replan, int workers,
                     const SimulatedDisk& disk)
      : frame_(std::move(frame)),
        record_(record),
        replan_(std::move(replan)),
        workers_(workers),
        disk_(disk) {}
  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

 private:
  void OnProgress(const Envelope& envelope);
  void OnJournal(const Envelope& envelope, Outbox& outbox);
  bool Hangs(Time now) const { return disk_.hangs_from && now >= *disk_.hangs_from; }
  void WriteDown();
  void Confirm(Outbox& outbox) const;

  ProgramFrame frame_;
  SchedulerRecord* record_;
  Replanner replan_;
  int workers_;
  SimulatedDisk disk_;
  std::vector<wire::JournalRecord> unwritten_;
  int64_t last_record_ = 0;  // its number
};

}  // namespace poseidon
