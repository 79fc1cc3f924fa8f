#include "simulation/failures/failure_answer.h"

#include <string>

#include "core/arithmetic/update_rule.h"
#include "core/error.h"
#include "core/units.h"
#include "proto/model_size.h"
#include "proto/update_rule_message.h"
#include "simulation/failures/snapshot_restarts.h"

namespace poseidon {

RecoveryChoice ParseRecoveryChoice(const std::string& text) {
  const std::string snapshot = "snapshot:";
  if (text == "replace") return {Recovery::REPLACE, {}};
  if (text == "shrink") return {Recovery::SHRINK, {}};
  if (text == "snapshot") return {Recovery::NONE, {}};
  if (text.starts_with(snapshot)) {
    return {Recovery::NONE,
            ParsePositiveSeconds("the time between snapshots", text.substr(snapshot.size()))};
  }
  throw ConfigError("recovery is \"" + text +
                    "\"; it must be one of replace, shrink, snapshot:INTERVAL (such as "
                    "snapshot:30min), snapshot (at the best interval)");
}

double ParsePositiveSeconds(const std::string& name, const std::string& text) {
  Duration duration{};
  try {
    duration = ParseDuration(text);
  } catch (const ConfigError& error) {
    throw ConfigError(name + ": " + error.what());
  }
  if (duration <= Duration::zero()) {
    throw ConfigError(name + " is \"" + text + "\"; it must be above 0");
  }
  return ToSeconds(duration);
}

double ParseReplacementSeconds(const std::string& name, const std::string& text) {
  constexpr double kMost = 1e6;  // of that field; and times of a simulation are in nanoseconds
  const double seconds = ParsePositiveSeconds(name, text);
  if (seconds <= kMost) return seconds;
  throw ConfigError(name + " is \"" + text +
                    "\"; it must be at most 1000000s, as long as a job waits for one "
                    "(recovery.replacement_deadline_seconds)");
}

FailureScenario ParseFailures(const std::string& name, const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) {
    throw ConfigError(name + " is \"" + text +
                      "\"; it must be MTBF:DURATION, the mean time until a node fails and the time "
                      "until another process is there: 720h:1min");
  }
  FailureScenario scenario;
  scenario.mtbf =
      ParsePositiveSeconds(name + ", the time until a node fails", text.substr(0, colon));
  scenario.replacement = ParseReplacementSeconds(name + ", the time until another process is there",
                                                 text.substr(colon + 1));
  return scenario;
}

double SnapshotSeconds(const ModelSpec& model) {
  constexpr double kBytesPerSecond = 1e9;
  double floats = 0;
  for (const LayerSpec& layer : model.layers()) floats += static_cast<double>(FloatCount(layer));
  // A net without a solver is taken to have the momentum that most have.
  const int state = model.update_rule().lr_policy().empty()
                        ? 1
                        : OptimizerStatePerParameter(ToUpdateRule(model.update_rule()));
  return floats * sizeof(float) * (1 + state) / kBytesPerSecond;
}

RestartAnswer AnswerOfRestarts(const Job& job, const ModelSpec& model,
                               const FailureScenario& scenario, const SimulatedTraining& training,
                               std::optional<double> interval, std::optional<double> write) {
  const int nodes = job.cluster().workers() + job.cluster().servers();
  RestartAnswer answer;
  answer.write = write.value_or(SnapshotSeconds(model));
  answer.restart = job.communication().heartbeat_deadline_seconds() + scenario.replacement +
                   training.start + answer.write;
  const SnapshotRestarts restarts{scenario.mtbf / nodes, answer.write, answer.restart};
  answer.best = !interval;
  answer.interval = interval.value_or(BestInterval(restarts));
  answer.goodput = GoodputOfRestarts(restarts, answer.interval);
  answer.iteration = training.iteration;
  return answer;
}

std::optional<double> FailureAnswer::LongRunGoodput(int nodes) const {
  constexpr double kRare = 0.1;  // of the time
  if (!costs || choice.mode != Recovery::REPLACE) return std::nullopt;
  const double lost = costs->SecondsOfALoss() * nodes / scenario.mtbf;
  return lost < kRare ? std::optional(1 - lost) : std::nullopt;
}

void CheckCanRecover(const Job& job) {
  if (job.recovery().mode() == Recovery::NONE) return;
  if (job.cluster().workers() == 1) {
    throw ConfigError(
        "the job has one worker, and when it is lost nobody has the parameters any more; only a "
        "restart from a snapshot is left");
  }
  if (job.communication().local_steps() > 1) {
    throw ConfigError(
        "with local steps each process has a state of its own that nobody else keeps, so a job of "
        "communication.local_steps " +
        std::to_string(job.communication().local_steps()) +
        " can't recover; ask for a restart from a snapshot, by recovery snapshot:INTERVAL or "
        "snapshot, or use 1");
  }
}

FailureAnswer AnswerFailures(const Job& job, const ModelSpec& model,
                             const FailureScenario& scenario, const RecoveryChoice& choice,
                             std::optional<double> snapshot_seconds,
                             const SimulatedTraining& restarting,
                             const SimulationControl& control) {
  CheckCanRecover(job);
  FailureAnswer answer;
  answer.scenario = scenario;
  answer.choice = choice;
  answer.restarts =
      AnswerOfRestarts(job, model, scenario, restarting, choice.interval, snapshot_seconds);
  if (choice.mode == Recovery::NONE) return answer;
  answer.costs = SimulateFailures(job, model, scenario, control);
  return answer;
}

}  // namespace poseidon
