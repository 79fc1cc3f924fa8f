// `poseidon plan`: the scheduler's plan for a net and a cluster, without either.
#pragma once

#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/input/model_source.h"
#include "core/error.h"
#include "core/time.h"
#include "planner/job_plan.h"
#include "planner/policies.h"
#include "planner/what_limits.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "simulation/plan_trial.h"

namespace poseidon {

struct PlanOptions {
  ModelSource source;
  Job job;  // cluster and communication count
};

// A model, what told its samples' shapes, and the job that its options make.
struct ModelAndJob {
  ModelSpec model;
  Job job;
  std::vector<SampleInput> inputs;
};

// Throws as PlanModel does.
ModelAndJob LoadModelAndJob(const PlanOptions& options);

// A model, its plan with predictions, and what told its samples' shapes.
struct PlannedModel {
  ModelSpec model;
  Plan plan;
  std::vector<SampleInput> inputs;
  Limits limits;
  double slowest_factor = 1;  // how many times as long as usual the slowest worker computes
  SearchReport search;        // of policy TIME
  bool colocated = true;      // servers share workers' machines
};

// "searched: ...", a line that says what was looked at and what ended the search; empty where there
// was none.
std::string SearchText(const SearchReport& search);

// How many data lanes, whether they were `planned`, and what `others` would take, by `steps`: 1 for
// an iteration of the plan, its local steps for one of these. Of a network with tiers by the
// machines' own links alone, the plan's number among them.
nlohmann::ordered_json LanesJson(const Plan& plan, int steps);

// "what limits: ...", and a line for each change that would make the iteration longer or shorter.
std::string LimitsText(const Limits& limits);
nlohmann::ordered_json LimitsJson(const Limits& limits);

// Throws ConfigError for a net or settings that can't work, DataError where nothing tells the shape
// of the net's samples (LoadModel).
PlannedModel PlanModel(const PlanOptions& options, const JobPlanTrial& trial = TryPlan);

// What `poseidon plan` and `poseidon simulate` say on standard error while they plan: nothing for
// the first seconds, then what was found, at most every few. Thread-safe.
class PlanningReport {
 public:
  PlanningReport(std::ostream& out, Time start) : out_(out), start_(start), next_(start + kFirst) {}

  // TryPlan, which is told of.
  JobPlanTrial Trial();
  // The plan has been tried: takes so many seconds, or is too large for that.
  void On(const Plan& plan, std::optional<double> seconds, Time now);

 private:
  static constexpr Duration kFirst = std::chrono::seconds(2);
  static constexpr Duration kInterval = std::chrono::seconds(2);

  std::mutex mutex_;
  std::ostream& out_;
  Time start_;
  Time next_;
};

// For people: a line a layer with its floats, a line a bucket with its times, then totals.
std::string PlanTable(const PlannedModel& planned);

// For programs: `parameters`, `iteration_ms`, `estimated` (whether that is no more than an
// estimate, as of plans with too many messages), `simulated_ms` (null if the plan was not
// tried), `compute_ms` of the usual worker and `slowest_compute_ms`, `lanes`, `grid[]` of tori
// with `size` and `algorithm`; `inputs[]` with `layer`, `shape` and `source`
// (cli/input/sample_input.h); `layers[]` with `name`, `type`, `shape`, `parameters`, `scheme`,
// `floats_ps`, `floats_sfb` (null where SFB is impossible), `kv_pairs` of its bucket;
// `buckets[]` with `name`, `layers`, `scheme`, `codec`, `parameters`, `chunks`, `bytes_sent`,
// `bytes_received` (by the most loaded machine), `predicted_ms`, `ready_ms`, `sent_ms`,
// `fresh_ms`, `needed_ms`, `runner_up` (null if there is none) with `scheme` and `predicted_ms`;
// `total`, `server_load`; `search` (null where nothing is searched: policies but TIME, and local
// steps) with `searches`, `predicted`, `tried`, `too_large` and `more_to_try` of plans, how many
// searches ended `hidden`, `complete`, `limited` or `needless`, and `limited_stages[]`
// (planner/time_planner.h); `limits` (planner/what_limits.h) with `by`, `iteration_ms` (the
// prediction that the rest is to be compared with), `without_ms` (if what is named took no time, or
// with the best change of it where that is less), `changes[]` and `setbacks[]`, each with `change`
// and `iteration_ms` as predicted.
std::string PlanJson(const PlannedModel& planned);

// From the flags of `poseidon plan --help`. Throws ConfigError for what is missing or wrong.
PlanOptions PlanOptionsFromFlags(const NamedPolicies& policies);

// Whether --format asks for JSON rather than a table. Throws ConfigError if it is neither.
bool JsonFromFlags();

// Reads the flags of `poseidon plan --help` and prints the plan. Throws Error.
ExitCode PlanVerb();

}  // namespace poseidon
