#include "experiments/experiment_points.h"

#include <xxhash.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <set>

#include "core/error.h"
#include "core/units.h"
#include "planner/model_times.h"
#include "planner/policies.h"
#include "proto/cluster_rates.h"
#include "proto/compatibility.h"
#include "proto/job_config.h"
#include "simulation/failures/failure_answer.h"

namespace poseidon {
namespace {

// A list of a sweep; an empty one is one entry, nothing.
template <typename List>
auto Axis(const List& list) {
  using Value = std::optional<std::decay_t<decltype(list.Get(0))>>;
  std::vector<Value> axis(list.begin(), list.end());
  if (axis.empty()) axis.push_back(std::nullopt);
  return axis;
}

const System& SystemNamed(const Experiment& experiment, const std::string& name) {
  return *std::find_if(experiment.system().begin(), experiment.system().end(),
                       [&](const System& system) { return system.name() == name; });
}

Communication PolicyNamed(const std::string& name) {
  return FindPolicy(SimulatedPolicies(), name)->second;
}

// One combination of a sweep's lists.
struct Choice {
  std::string net;
  std::string system;
  std::optional<int> workers;
  std::optional<int> spare_servers;
  std::optional<std::string> bandwidth;
  std::optional<std::string> latency;
  std::optional<int> devices;
  std::optional<Condition> condition;
  std::optional<std::string> mtbf;
};

Cluster ClusterFor(const Sweep& sweep, const System& system, const Choice& choice) {
  Cluster cluster = sweep.cluster();
  // A list is one setting, which is not to be made longer.
  if (system.cluster().network().tier_size() > 0) cluster.mutable_network()->clear_tier();
  cluster.MergeFrom(system.cluster());
  // Set even where it is the default, so that the same point has the same bytes.
  cluster.set_workers(choice.workers.value_or(cluster.workers()));
  if (choice.spare_servers || !cluster.has_servers()) {
    // Of workers that nobody has checked yet: they may be as many as there are numbers.
    const int64_t servers = int64_t{cluster.workers()} + choice.spare_servers.value_or(0);
    cluster.set_servers(static_cast<int>(std::min<int64_t>(servers, INT32_MAX)));
  }
  Network& network = *cluster.mutable_network();
  network.set_bandwidth(choice.bandwidth.value_or(network.bandwidth()));
  network.set_latency(choice.latency.value_or(network.latency()));
  cluster.set_devices_per_worker(choice.devices.value_or(cluster.devices_per_worker()));
  return cluster;
}

Communication CommunicationFor(const Sweep& sweep, const System& system, int workers) {
  Communication communication = PolicyNamed(system.policy());
  communication.MergeFrom(sweep.communication());
  if (system.communication().grid_size() > 0) communication.clear_grid();
  communication.MergeFrom(system.communication());
  if (system.has_grid_row()) {
    // Of workers that nobody has checked yet: they may be none.
    const int row = std::max(1, std::min(system.grid_row(), workers));
    communication.clear_grid();
    communication.add_grid(row);
    communication.add_grid(workers / row);
  }
  // Points differ in what the file names, not in what a planner makes of each.
  if (!communication.has_lanes()) communication.set_lanes(1);
  return communication;
}

ExperimentPoint MakePoint(const ExperimentFile& file, const Sweep& sweep, const Choice& choice,
                          const ExperimentModel& model) {
  const System& system = SystemNamed(file.experiment, choice.system);
  ExperimentPoint point;
  point.net = choice.net;
  point.system = choice.system;
  point.policy = system.policy();
  point.plan_only = sweep.plan_only();
  point.iterations = sweep.iterations();
  if (choice.condition) point.condition = *choice.condition;
  if (choice.mtbf) {
    point.failures = sweep.failures();
    point.failures->clear_mtbf();
    point.failures->add_mtbf(*choice.mtbf);
    point.recovery = system.recovery();
    const Recovery::Mode mode = ParseRecoveryChoice(point.recovery).mode;
    if (mode != Recovery::NONE) point.job.mutable_recovery()->set_mode(mode);
  }
  *point.job.mutable_cluster() = ClusterFor(sweep, system, choice);
  if (point.condition.known()) {
    point.job.mutable_cluster()->mutable_deviation()->MergeFrom(point.condition.deviation());
    point.condition.clear_deviation();
  }
  const Cluster& cluster = point.job.cluster();
  if (model.disturbance && !cluster.has_disturbance()) {
    *point.job.mutable_cluster()->mutable_disturbance() = *model.disturbance;
  }
  if (model.flops && !cluster.has_flops()) {
    point.job.mutable_cluster()->set_flops(*model.flops);
    point.flops_of_net = true;
  }
  *point.job.mutable_communication() = CommunicationFor(sweep, system, cluster.workers());
  if (model.training) {
    *point.job.mutable_training() = *model.training;
    point.solver = model.solver;
  } else {
    point.job.mutable_training()->set_engine(Training::REPLAY);
  }
  // Not even the default is said, so that other points keep their keys.
  if (system.batch() != Training::EQUAL) point.job.mutable_training()->set_batch(system.batch());
  point.job.set_name(file.experiment.name());
  point.model = WithBatches(WithTimes(model.model, cluster.flops()), cluster.devices_per_worker());
  return point;
}

void CheckPoint(const ExperimentPoint& point) {
  CheckClusterAndCommunication(point.job);
  // All others' plans are predicted as if one switch joined all machines.
  if (point.plan_only && point.job.cluster().network().tier_size() > 0 &&
      point.job.communication().policy() != Communication::TIME) {
    throw ConfigError(
        "only policy TIME is planned for network.tier; leave plan_only or the tiers out");
  }
  for (const Deviation& deviation : point.condition.deviation()) {
    if (deviation.worker() >= point.job.cluster().workers()) {
      throw ConfigError("the condition \"" + point.condition.name() + "\" is about worker " +
                        std::to_string(deviation.worker()));
    }
    if (deviation.has_bandwidth()) {
      CheckGoodput("goodput_share", point.job.cluster().network().goodput_share(),
                   deviation.bandwidth());
    }
  }
}

// All of a net, and a time between failures.
void AddChoices(const std::string& net, const std::optional<std::string>& mtbf, const Sweep& sweep,
                std::vector<Choice>& choices) {
  for (const auto& bandwidth : Axis(sweep.bandwidth())) {
    for (const auto& latency : Axis(sweep.latency())) {
      for (const auto& condition : Axis(sweep.condition())) {
        for (const auto& devices : Axis(sweep.devices_per_worker())) {
          for (const std::string& system : sweep.system()) {
            for (const auto& workers : Axis(sweep.workers())) {
              for (const auto& spare : Axis(sweep.spare_servers())) {
                choices.push_back(
                    {net, system, workers, spare, bandwidth, latency, devices, condition, mtbf});
              }
            }
          }
        }
      }
    }
  }
}

std::vector<Choice> ChoicesOf(const Experiment& experiment, const Sweep& sweep) {
  std::vector<std::string> nets(sweep.net().begin(), sweep.net().end());
  if (nets.empty()) {
    for (const Net& net : experiment.net()) nets.push_back(net.name());
  }
  std::vector<Choice> choices;
  // The last list changes fastest: small clusters, whose points are quick, come before large ones.
  for (const std::string& net : nets) {
    for (const auto& mtbf : Axis(sweep.failures().mtbf())) {
      AddChoices(net, mtbf, sweep, choices);
    }
  }
  return choices;
}

bool IsFor(const Published& published, const ExperimentPoint& point) {
  const Cluster& cluster = point.job.cluster();
  return (!published.has_net() || published.net() == point.net) &&
         (!published.has_system() || published.system() == point.system) &&
         (!published.has_workers() || published.workers() == cluster.workers()) &&
         (!published.has_devices_per_worker() ||
          published.devices_per_worker() == cluster.devices_per_worker()) &&
         (!published.has_bandwidth() ||
          ParseBitRate(published.bandwidth()) == ParseBitRate(cluster.network().bandwidth()));
}

// What of the job decides. A device's flops do so where gradients may be rebuilt from factors; a
// net that says them has times of its own. A solver does by what it says (ExperimentPoint.solver),
// from wherever it is read.
Job WhatDecides(const ExperimentPoint& point) {
  Job job = point.job;
  const bool factors = OnlyScheme(job.communication().policy()) == SCHEME_UNSPECIFIED;
  if (point.flops_of_net && !factors) job.mutable_cluster()->clear_flops();
  if (!point.solver.empty()) job.mutable_training()->clear_solver();
  return job;
}

// Protobuf's own bytes, which are the same for the same message in one build.
void Append(const google::protobuf::Message& message, std::string& bytes) {
  const std::string own = message.SerializeAsString();
  bytes += std::to_string(own.size()) + ":" + own;
}

}  // namespace

const char* NameOf(ExperimentMode mode) {
  switch (mode) {
    case ExperimentMode::kEmulate:
      return "emulate";
    case ExperimentMode::kRun:
      return "run";
    default:
      return "simulate";
  }
}

std::vector<ExperimentPoint> PointsOf(const ExperimentFile& file,
                                      const std::map<std::string, ExperimentModel>& models) {
  std::vector<ExperimentPoint> points;
  std::set<std::string> seen;
  for (int i = 0; i < file.experiment.sweep_size(); ++i) {
    const Sweep& sweep = file.experiment.sweep(i);
    for (const Choice& choice : ChoicesOf(file.experiment, sweep)) {
      ExperimentPoint point = MakePoint(file, sweep, choice, models.at(choice.net));
      point.sweep = NameOfSweep(file.experiment, i);
      try {
        CheckPoint(point);
      } catch (const ConfigError& error) {
        throw ConfigError(file.Where("sweep." + std::to_string(i)),
                          Describe(point) + ": " + error.what());
      }
      if (seen.insert(KeyOf(point, ExperimentMode::kSimulate)).second) {
        points.push_back(std::move(point));
      }
    }
  }
  return points;
}

std::string NameOfSweep(const Experiment& experiment, int place) {
  const Sweep& sweep = experiment.sweep(place);
  return sweep.has_name() ? sweep.name() : std::to_string(place + 1);
}

std::vector<std::string> UsedNets(const Experiment& experiment) {
  std::set<std::string> used;
  for (const Sweep& sweep : experiment.sweep()) {
    for (const Choice& choice : ChoicesOf(experiment, sweep)) used.insert(choice.net);
  }
  return {used.begin(), used.end()};
}

std::string KeyOf(const ExperimentPoint& point, ExperimentMode mode) {
  std::string bytes = std::string(NameOf(mode)) + "\n" + point.net + "\n" + point.system + "\n" +
                      (point.plan_only ? "plan\n" : "") + std::to_string(point.iterations) + "\n";
  Append(WhatDecides(point), bytes);
  Append(point.model, bytes);
  Append(point.condition, bytes);
  if (point.failures) {
    Append(*point.failures, bytes);
    bytes += point.recovery + "\n";
  }
  bytes += point.solver;
  char key[17];
  std::snprintf(key, sizeof key, "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
  return key;
}

std::string Describe(const ExperimentPoint& point) {
  const Cluster& cluster = point.job.cluster();
  std::string text = point.net + ", " + point.system + ", " + std::to_string(cluster.workers()) +
                     (cluster.workers() == 1 ? " worker" : " workers");
  if (cluster.devices_per_worker() > 1) {
    text += " of " + std::to_string(cluster.devices_per_worker()) + " devices";
  }
  if (const int spare = cluster.servers() - cluster.workers(); spare > 0) {
    text += ", " + std::to_string(spare) + (spare == 1 ? " spare server" : " spare servers");
  }
  text += ", " + cluster.network().bandwidth();
  if (cluster.network().has_latency()) text += ", " + cluster.network().latency();
  if (!point.condition.name().empty()) text += ", " + point.condition.name();
  if (point.failures) text += ", a node lives " + point.failures->mtbf(0);
  return text;
}

std::optional<PublishedValue> PublishedFor(const Experiment& experiment,
                                           const ExperimentPoint& point) {
  for (const Published& published : experiment.published()) {
    if (!IsFor(published, point) || !point.condition.name().empty()) continue;
    const Cluster& cluster = point.job.cluster();
    const double devices = cluster.workers() * cluster.devices_per_worker();
    return PublishedValue{
        published.has_speedup() ? published.speedup() : published.efficiency() * devices,
        published.fitted(), published.source()};
  }
  return std::nullopt;
}

}  // namespace poseidon
