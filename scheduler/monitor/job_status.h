// JobStatus: all that a monitor shows of a job at one moment; StatusTracker: puts it together from
// what the scheduler's actor tells its program.
//
//   StatusTracker tracker(job, SteadyNow());
//   tracker.OnProgress(progress, SteadyNow());
//   board.Publish(tracker.status(SteadyNow()));
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/time.h"
#include "proto/job.pb.h"
#include "proto/journal.pb.h"
#include "proto/wire.pb.h"
#include "scheduler/monitor/history.h"
#include "scheduler/report/job_traffic.h"
#include "scheduler/report/unknown_value.h"
#include "scheduler/stragglers/straggler_watch.h"
#include "transport/address.h"

namespace poseidon {

// What a worker has told last; of the other nodes, whether they are there.
// The slowest of the links that a worker has measured.
struct MeasuredLink {
  double latency_seconds = 0;
  double goodput_bytes_per_second = 0;
};

struct NodeStatus {
  std::string host;  // empty until the node has joined
  int64_t pid = 0;
  bool lost = false;
  bool awaited = false;  // the job's phase waits for it
  bool finished = false;
  bool overdue = false;  // its heartbeat
  int64_t done = 0;      // iterations; of a process that has told of none, what it begins with
  int64_t images = 0;
  double iteration_seconds = kUnknownValue;
  double exchange_seconds = kUnknownValue;
  double exposed_seconds = kUnknownValue;
  Time heard{};  // when it told; 0 before
  std::optional<MeasuredLink> link;
  std::optional<Straggler> slow;  // if it is steadily slower than the other workers
};

struct LastTest {
  int64_t iteration = 0;
  std::optional<double> accuracy;
  std::optional<double> loss;
};

// A value. Copies are cheap enough for several a second: the plan is shared, the lists are bounded.
struct JobStatus {
  uint64_t version = 0;  // counts what has been published, from 1
  std::string job;
  Time started{};
  Time now{};
  std::string phase = "gathering";
  std::string waiting_for;  // a clause for people; empty: for nothing
  int64_t iteration = 0;    // done by all workers
  int64_t iterations = 0;   // of the whole training; 0: not known
  // Of the newest iteration, means over the workers; NaN if none has told.
  double loss = kUnknownValue;
  // Of the newest iterations together: all workers' samples by their time.
  double images_per_second = kUnknownValue;
  double iteration_ms = kUnknownValue;
  double exposed_ms = kUnknownValue;
  double slowest_ms = kUnknownValue;  // what the job gets on by: iteration_ms, or more
  int64_t images = 0;                 // that all workers have told of; never goes back
  Time progressed{};  // when an iteration was done last, or training began; 0 before
  Time resumed{};     // when training began last, also after a loss or with another plan; 0 before
  std::map<NodeId, NodeStatus> nodes;
  std::shared_ptr<const wire::PlanAndModel> plan;  // null before there is one
  // By the plan's buckets: from ready to fresh, means over workers and iterations; NaN: not yet.
  std::vector<double> measured_ms;
  History history;
  std::optional<wire::IterationTimeline> timeline;  // the newest, of this worker
  int timeline_rank = 0;
  std::optional<LastTest> test;
  std::vector<wire::Recovered> recoveries;  // the newest of them
  int64_t recovery_count = 0;               // after a loss, or as the exchange hung
  std::deque<wire::Notice> notices;         // the newest of them
  std::optional<wire::End> end;
};

// Not thread-safe.
class StatusTracker {
 public:
  // The nodes of `job` are there from the start, without a host.
  StatusTracker(const Job& job, Time now);

  // What an earlier scheduler of the job has written down.
  void Restore(const wire::JournalRecord& record);
  void OnView(const wire::View& view);
  void OnPhase(const wire::JobPhase& phase, Time now);
  // All whose heartbeats are overdue.
  void OnOverdue(const wire::Silent& overdue);
  void OnPlan(const wire::PlanAndModel& plan);
  // The present plan with better predictions, or an earlier one of the same layout.
  void OnRecalibration(const Plan& plan);
  void OnProgress(const wire::Progress& progress, Time now);
  // All that are or were slow.
  void OnLinks(const wire::LinkReport& links);
  void OnStragglers(const std::vector<Straggler>& stragglers);
  // All workers have done it, or no more will tell (JobReport::OnIteration).
  void OnIteration(const wire::IterationRecord& iteration, Time now);
  void OnRecovered(const wire::Recovered& recovered);
  void OnNotice(const wire::Notice& notice);
  void OnFinished(const wire::WorkerReport& report);
  void OnEnd(const wire::End& end);

  JobStatus status(Time now) const;

 private:
  // Of the present plan, by bucket.
  struct Measured {
    double sum_ms = 0;
    int64_t count = 0;
  };

  void AddTimeline(const wire::Progress& progress);
  void ForgetFrom(int64_t iteration);
  void UpdateRates();

  JobStatus status_;
  std::vector<Measured> measured_;
  PlanLayouts layouts_;
  WorkerReports finished_;
  std::deque<wire::IterationRecord> newest_;  // for the rates
};

}  // namespace poseidon
