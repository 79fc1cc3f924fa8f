// JobReport: what a job's workers report, put together: lines for people while it runs, and
// summary.json at the end.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/time.h"
#include "proto/journal.pb.h"
#include "proto/wire.pb.h"
#include "scheduler/report/iteration_means.h"
#include "scheduler/report/job_traffic.h"
#include "scheduler/stragglers/straggler_watch.h"

namespace poseidon {

// Not thread-safe.
class JobReport {
 public:
  // Is told, once each, what a later scheduler's report has to know and nobody tells again: of
  // each iteration that has come to an end at all workers, of what was measured, and of who was
  // slow or has finished.
  using OnRecord = std::function<void(const wire::JournalRecord&)>;

  // `workers`: of the job config.
  explicit JobReport(int workers, OnRecord on_record = {})
      : first_workers_(workers), workers_(workers), on_record_(std::move(on_record)) {
    stragglers_.SetWorkers(workers);
  }

  // What an earlier scheduler of the job has written down, in its order, before anything else.
  void Restore(const wire::JournalRecord& record);

  void OnPlan(const wire::PlanAndModel& plan);
  // What a worker has measured before the first plan; its rank is set.
  void OnLinks(const wire::LinkReport& links);
  // The present plan with better predictions, or an earlier one of the same layout.
  void OnRecalibration(const Plan& plan);
  // A line to show, at most one a second and one at the end of training: iteration, loss (mean over
  // the workers that tell one, if any does), images/s of all workers, and the share of the exchange
  // that was not hidden behind computing. Test results get a line of their own. What has been told
  // before is passed over.
  std::optional<std::string> OnProgress(const wire::Progress& progress, Time now);
  // Who is steadily slower than the other workers. Call it, too, with whatever OnProgress is told
  // of; returns a line to show for each worker that has turned out to be slow, or to have healed.
  std::vector<std::string> OnPace(const wire::Progress& progress);
  const std::vector<Straggler>& stragglers() const { return stragglers_.stragglers(); }
  // Iterations from recovered.iteration() on are to come again. Returns a line to show.
  std::string OnRecovered(const wire::Recovered& recovered);
  void OnFinished(const wire::WorkerReport& report);

  // "bucket  layers  scheme  ..." for people, before training.
  std::string PlanTable() const;
  // The keys are documented in docs/running.md. `elapsed`: since the scheduler began, if told.
  std::string Json(const std::string& job_name, const wire::End& end,
                   std::optional<Duration> elapsed = std::nullopt) const;
  // For people, after training: what came of it, and how well the prediction fitted.
  std::string Closing() const;

 private:
  struct Iteration {
    std::set<int> reports;        // ranks of the workers
    double loss = 0;              // sum over the workers that have told theirs
    int losses = 0;               // how many these are
    int64_t images = 0;           // sum over the workers that have reported
    std::vector<double> seconds;  // of each of these workers
    double exchange = 0;          // sum over the workers, like the next
    double exposed = 0;

    // Mean over the workers that have told theirs; NaN if none has.
    double MeanLoss() const;
  };

  // What lines for people have not told yet.
  struct SinceLine {
    // That the iterations took: after a scheduler has been away, many are told of at one moment.
    double seconds = 0;
    int64_t images = 0;
    double exchange = 0;
    double exposed = 0;
  };

  // No more reports of the iteration will come.
  void Record(int64_t number, const Iteration& done);
  // Likewise of those before `end`, of which some worker has not told: it died first.
  void RecordOpen(int64_t end);
  void Add(const wire::IterationRecord& iteration);
  void Tell(const wire::JournalRecord& record) const;
  // Whether there can be such an iteration.
  bool IsPlausible(int64_t number) const;
  bool IsRecorded(int64_t number) const;
  void CutFrom(int64_t number);
  // `loss`: the iteration's mean.
  std::string ProgressLine(const wire::Progress& progress, double loss) const;
  // The mean; 0 if nobody has finished.
  double IterationMilliseconds() const;
  struct WorkerTime {
    double whole;  // seconds; without the test phases and snapshots that it has made itself
    double busy;   // of it, without waiting for exchanges and for others; 0 for worker 0
  };
  // Of one of `iterations` parts of a worker's training.
  static WorkerTime TimeOf(const wire::WorkerReport& report, double iterations = 1);
  // What the training took of which each worker's time is in `times`, which is not empty. Workers
  // that are in step have done the same in it, and all but worker 0 have waited for its test phases
  // and snapshots: the least is without these, but no less than the slowest worker was busy. Others
  // are waited for until the last has finished.
  double TimeOfAll(const std::vector<WorkerTime>& times) const;
  bool IsInStep() const;
  // The median of what iterations took the workers together since the present plan, without its
  // first; nothing where there are none.
  std::optional<double> MedianMilliseconds() const;
  // Predicted against measured; empty if there is no prediction.
  std::string PredictionReview() const;
  int64_t Iterations() const;
  // Whether a worker has told how many samples it computed: a program need not.
  bool KnowsImages() const;
  double ImagesPerSecond() const;  // NaN: nobody has told
  // Where processes have taken the places of others, and have not trained for as long.
  double ImagesPerSecondOfEach() const;
  double ExposedShare() const;

  const int first_workers_;  // who have measured links
  int workers_;              // of the present plan
  OnRecord on_record_;
  wire::PlanAndModel plan_;
  PlanLayouts layouts_;
  std::map<int, wire::LinkReport> links_;  // by the rank of the worker that has measured them
  std::map<int64_t, Iteration> open_;      // iterations that some workers have reported
  std::optional<int64_t> first_iteration_;
  // By iteration from the first: whether it has come to an end, one bit each; and means over the
  // workers.
  std::vector<bool> recorded_;
  IterationMeans loss_;
  IterationMeans duration_ms_;
  IterationMeans together_ms_;  // by which predictions are judged
  IterationMeans exposed_ms_;   // in the iteration: the exchange is the one before
  IterationMeans images_;       // of all workers together
  std::optional<Time> last_line_;
  SinceLine since_line_;
  WorkerReports finished_;
  std::vector<wire::Recovered> recoveries_;
  StragglerWatch stragglers_;
  int terms_ = 0;  // schedulers before this one
};

}  // namespace poseidon
