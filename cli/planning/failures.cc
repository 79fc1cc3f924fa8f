#include "cli/planning/failures.h"

#include <algorithm>

#include "cli/input/flags.h"
#include "cli/output/experiment_progress.h"
#include "cli/output/table.h"
#include "core/error.h"
#include "core/time.h"

namespace poseidon {
namespace {

constexpr int kPercent = 100;

int NodesOf(const Job& job) { return job.cluster().workers() + job.cluster().servers(); }

// "3.5 min": long times and short ones, for people.
std::string TimeText(double seconds) {
  constexpr double kMinute = 60;
  constexpr double kHour = 3600;
  constexpr double kDay = 86400;
  constexpr int kMany = 3;  // of a unit, before the next larger one
  if (seconds >= kMany * kDay) return Digits(seconds / kDay, 1) + " days";
  if (seconds >= kMany * kHour) return Digits(seconds / kHour, 1) + " h";
  if (seconds >= kMany * kMinute) return Digits(seconds / kMinute, 1) + " min";
  if (seconds < 1) return Digits(kMillisecondsPerSecond * seconds, 1) + " ms";
  return Digits(seconds, 1) + " s";
}

const char* NameOf(Recovery::Mode mode) {
  switch (mode) {
    case Recovery::REPLACE:
      return "replace";
    case Recovery::SHRINK:
      return "shrink";
    default:
      return "snapshot";
  }
}

std::string Milliseconds(double seconds) { return Digits(kMillisecondsPerSecond * seconds, 1); }

void AddRecovered(const FailureCosts& costs, Table& table) {
  table.AddRow({"losses", std::to_string(costs.losses), ""});
  table.AddRow({"recoveries", std::to_string(costs.recoveries), ""});
  table.AddRow({"redone", std::to_string(costs.redone), "iterations"});
  table.AddRow({"detected", Milliseconds(costs.detected), "ms"});
  table.AddRow({"restored", Milliseconds(costs.restored), "ms"});
  table.AddRow({"total", Milliseconds(costs.detected + costs.restored), "ms"});
  table.AddRow({"the longest", Milliseconds(costs.longest), "ms"});
}

std::string RecoveredText(const FailureAnswer& answer, const Job& job) {
  const FailureCosts& costs = *answer.costs;
  std::string text = "goodput: iterations that stay done, of the " + TimeText(costs.wall) +
                     " until the last loss is recovered; recoveries in the mean\n";
  text += "by the actors: " + Grouped(costs.simulated) + " iterations, all that are near a loss; " +
          Grouped(costs.counted) + " between them are counted, not simulated\n";
  if (const std::optional<double> goodput = answer.LongRunGoodput(NodesOf(job))) {
    text += "in the long run, if each loss costs " + TimeText(costs.SecondsOfALoss()) +
            " as these do: goodput " + Digits(kPercent * *goodput, 2) + "%\n";
  }
  const double deadline = job.recovery().replacement_deadline_seconds();
  if (answer.choice.mode == Recovery::REPLACE && answer.scenario.replacement > deadline) {
    text += "such a job needs recovery { replacement_deadline_seconds } above its " +
            TimeText(deadline) + ", or it ends before a replacement is there\n";
  }
  if (answer.choice.mode == Recovery::SHRINK) {
    text += "workers left: " + std::to_string(costs.workers) +
            "; an iteration of fewer counts as their share of one of all\n";
  }
  return text;
}

std::string RestartText(const FailureAnswer& answer, const ImageRates& rates) {
  const RestartAnswer& restarts = answer.restarts;
  return std::string(answer.costs ? "beside it: " : "") +
         "starting all again from a snapshot every " + TimeText(restarts.interval) +
         (restarts.best ? ", the best interval" : "") + ": goodput " +
         Digits(kPercent * restarts.goodput, 2) + "%, " +
         Digits(restarts.goodput * rates.restarting, 1) +
         " images/s\n(computed by Daly's formula; a snapshot takes " + TimeText(restarts.write) +
         ", a restart " + TimeText(restarts.restart) + ")\n";
}

}  // namespace

std::optional<FailureQuestion> FailureQuestionFromFlags() {
  if (!FlagGiven("failures")) {
    for (const char* flag : {"recovery", "losses", "seed", "snapshot_cost",
                             "heartbeat_interval_seconds", "heartbeat_deadline_seconds"}) {
      if (!FlagGiven(flag)) continue;
      throw ConfigError(std::string("--") + flag +
                        " says what nodes that fail cost; give --failures=MTBF:DURATION, too");
    }
    return std::nullopt;
  }
  FailureQuestion question;
  question.scenario = ParseFailures("--failures", FLAGS_failures);
  question.scenario.seed = FLAGS_seed;
  question.scenario.losses = FLAGS_losses;
  if (FLAGS_losses < 1) {
    throw ConfigError("--losses is " + std::to_string(FLAGS_losses) + "; it must be at least 1");
  }
  try {
    question.choice = ParseRecoveryChoice(FLAGS_recovery);
  } catch (const ConfigError& error) {
    throw ConfigError(std::string("--recovery: ") + error.what());
  }
  if (FlagGiven("snapshot_cost")) {
    question.snapshot_seconds = ParsePositiveSeconds("--snapshot_cost", FLAGS_snapshot_cost);
  }
  return question;
}

void SetRecovery(const FailureQuestion& question, Job& job) {
  job.mutable_recovery()->set_mode(question.choice.mode);
  Communication& communication = *job.mutable_communication();
  if (FlagGiven("heartbeat_interval_seconds")) {
    communication.set_heartbeat_interval_seconds(FLAGS_heartbeat_interval_seconds);
  }
  if (FlagGiven("heartbeat_deadline_seconds")) {
    communication.set_heartbeat_deadline_seconds(FLAGS_heartbeat_deadline_seconds);
  }
}

std::string FailureText(const FailureAnswer& answer, const Job& job, const ImageRates& rates) {
  const FailureScenario& scenario = answer.scenario;
  Table table({{"with failures"}, {"value", Table::Align::kRight}, {"unit"}});
  table.AddRow({"goodput", Digits(kPercent * answer.Goodput(), 2), "%"});
  table.AddRow({"throughput", Digits(answer.Goodput() * rates.job, 1), "images/s"});
  if (answer.costs) AddRecovered(*answer.costs, table);
  const bool shrinks = answer.choice.mode == Recovery::SHRINK;
  return "\n" + table.ToString() + "\nnodes: " + Grouped(NodesOf(job)) +
         ", of which one fails every " + TimeText(scenario.mtbf / NodesOf(job)) +
         (shrinks ? "; nobody comes in its place"
                  : "; another process is there after " + TimeText(scenario.replacement)) +
         "\n" + (answer.costs ? RecoveredText(answer, job) : "") + RestartText(answer, rates);
}

nlohmann::ordered_json FailureJson(const FailureAnswer& answer, const Job& job,
                                   const ImageRates& rates) {
  const RestartAnswer& restarts = answer.restarts;
  nlohmann::ordered_json json = {{"mtbf_seconds", answer.scenario.mtbf},
                                 {"replacement_seconds", answer.scenario.replacement},
                                 {"seed", answer.scenario.seed},
                                 {"recovery", NameOf(answer.choice.mode)},
                                 {"nodes", NodesOf(job)},
                                 {"goodput", answer.Goodput()},
                                 {"images_per_second", answer.Goodput() * rates.job},
                                 {"recovered", nullptr}};
  if (answer.costs) {
    const FailureCosts& costs = *answer.costs;
    json["recovered"] = {{"losses", costs.losses},
                         {"recoveries", costs.recoveries},
                         {"wall_seconds", costs.wall},
                         {"kept_iterations", costs.kept},
                         {"simulated_iterations", costs.simulated},
                         {"redone_iterations", costs.redone},
                         {"seconds_of_a_loss", costs.SecondsOfALoss()},
                         {"workers", costs.workers},
                         {"detected_ms", kMillisecondsPerSecond * costs.detected},
                         {"restored_ms", kMillisecondsPerSecond * costs.restored},
                         {"total_ms", kMillisecondsPerSecond * (costs.detected + costs.restored)},
                         {"longest_ms", kMillisecondsPerSecond * costs.longest}};
  }
  const std::optional<double> long_run = answer.LongRunGoodput(NodesOf(job));
  json["long_run_goodput"] = long_run ? nlohmann::ordered_json(*long_run) : nullptr;
  json["restarted"] = {{"goodput", restarts.goodput},
                       {"images_per_second", restarts.goodput * rates.restarting},
                       {"iteration_ms", kMillisecondsPerSecond * restarts.iteration},
                       {"interval_seconds", restarts.interval},
                       {"best_interval", restarts.best},
                       {"snapshot_seconds", restarts.write},
                       {"restart_seconds", restarts.restart}};
  return json;
}

}  // namespace poseidon
