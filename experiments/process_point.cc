#include "experiments/process_point.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "client/pace/compute_disturbance.h"
#include "core/atomic_file.h"
#include "core/error.h"
#include "core/files/directories.h"
#include "core/net/host_address.h"
#include "core/net/ip_networks.h"
#include "core/process/allowance.h"
#include "core/time.h"
#include "core/units.h"
#include "experiments/point_summary.h"
#include "launch/given_up.h"
#include "launch/handed_key.h"
#include "launch/process_cluster.h"
#include "planner/cost/cluster_model.h"
#include "proto/job_check.h"
#include "proto/replay_model.h"
#include "simulation/training_simulation.h"
#include "transport/membership/node_setup.h"

namespace poseidon {
namespace {

// Until TCP knows the links, and every buffer has been touched once.
constexpr int kLeastWarmUp = 5;
// The scheduler measures workers of a balanced batch for 20 iterations, and goes over to other
// parts where at least 20 are left (scheduler/stragglers/batch_balancer.h).
constexpr int kBalancedWarmUp = 40;

// The replay's, or, where the net is really trained, those that its solver asks for.
struct Iterations {
  int warm_up = 0;
  int counted = 0;
};

bool IsReplay(const ExperimentPoint& point) {
  return point.job.training().engine() == Training::REPLAY;
}

using DeviationList = google::protobuf::RepeatedPtrField<Deviation>;

// What the planner knows of, and then what befalls it.
DeviationList DeviationsOf(const ExperimentPoint& point) {
  DeviationList deviations = point.job.cluster().deviation();
  deviations.MergeFrom(point.condition.deviation());
  return deviations;
}

// Why no real processes can stand for the point, wherever they run.
std::optional<std::string> WhyNoProcesses(const ExperimentPoint& point) {
  if (point.failures) return "nodes that fail are only simulated";
  if (point.plan_only) return "only the planner is asked";
  if (point.job.communication().local_steps() > 1) return "local steps are only simulated";
  if (point.job.cluster().devices_per_worker() > 1) {
    return "devices of a worker are only simulated";
  }
  if (IsReplay(point) && point.job.cluster().has_copy_bandwidth()) {
    return "copies between a device and its host (copy_bandwidth) are only simulated";
  }
  if (!IsReplay(point)) {
    const auto is_slower = [](const Deviation& deviation) {
      return deviation.compute_factor() != 1;
    };
    const DeviationList deviations = DeviationsOf(point);
    if (std::any_of(deviations.begin(), deviations.end(), is_slower)) {
      return "only a replay can compute slower than it does";
    }
    return std::nullopt;
  }
  // A replay's update rule is its own, by which every layer is updated on its own.
  if (point.model.update_rule().deferred()) {
    return "clip_gradients is only simulated, unless the net is trained";
  }
  try {
    ReplayOf(point.model);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return std::nullopt;
}

void ThrowIf(const std::optional<std::string>& reason) {
  if (reason) throw ConfigError(*reason);
}

Iterations IterationsOf(const ExperimentPoint& point, const ProcessOptions& options) {
  const bool balanced = point.job.training().batch() == Training::BALANCED;
  Job unlike = point.job;
  *unlike.mutable_cluster()->mutable_deviation() = DeviationsOf(point);
  return {std::max(balanced ? kBalancedWarmUp : kLeastWarmUp, WarmUpIterations(unlike)),
          std::max(point.iterations, options.iterations)};
}

// Of all hosts, as a list of who may connect.
std::vector<std::string> AddressesOf(const std::vector<std::string>& hosts) {
  std::vector<std::string> addresses;
  for (const std::string& host : hosts) {
    try {
      addresses.push_back(ResolveHost(host));
    } catch (const ConfigError&) {
      throw ConfigError("this machine does not know the address of \"" + host +
                        "\", which the others are to let in; write the address behind the host's "
                        "name, or say in the job's `security` who may connect");
    }
  }
  return addresses;
}

// The address from which this machine, which `host` is, reaches `other`, where the host's name
// means a loopback address here: Debian's installer writes a machine's own so into /etc/hosts.
std::string OwnAddress(const Host& host, const std::string& loopback, const std::string& other) {
  const bool is_name = !IsIpAddress(host.address);
  if (const auto own = is_name ? OwnAddressTowards(other) : std::nullopt) return *own;
  throw ConfigError(host.name + " is at " + loopback +
                    ", a loopback address, at which other hosts find themselves; write its "
                    "address behind its name in the hosts file");
}

// At which the hosts reach each other. `by_name`: names, which may mean other addresses there, stay
// as far as they can.
std::vector<std::string> AddressesAmong(const std::vector<Host>& hosts, bool by_name) {
  std::vector<std::string> addresses;
  std::optional<std::string> other;  // of another machine
  for (const Host& host : hosts) {
    const std::vector<std::string> found = poseidon::AddressesOf(host.address);
    addresses.push_back(found.empty() ? host.address : found.front());
    if (!found.empty() && !IsLoopbackName(found.front())) other = found.front();
  }
  for (size_t i = 0; i < hosts.size(); ++i) {
    const bool is_loopback = IsLoopbackName(addresses[i]);
    if (!other || (by_name && !is_loopback)) {
      addresses[i] = hosts[i].address;
    } else if (is_loopback) {
      addresses[i] = OwnAddress(hosts[i], addresses[i], *other);
    }
  }
  return addresses;
}

// As the daemons get it, on machines of which the first `hosts` is the scheduler's. Whoever
// measures links does not want to measure encryption, so without a word in the file none is used,
// and only the machines themselves may connect.
Job JobFor(const ExperimentPoint& point, const Iterations& iterations,
           const std::vector<std::string>& hosts) {
  Job job = point.job;
  job.mutable_cluster()->set_scheduler_host(hosts.front());
  if (!job.has_security()) {
    job.mutable_security()->set_mode(Security::NONE);
    for (const std::string& address : AddressesOf(hosts))
      job.mutable_security()->add_allow(address);
  }
  if (!IsReplay(point)) return job;
  // With every layer's times, be they of the model or of the cluster's flops.
  ModelSpec model = point.model;
  const std::vector<LayerTime> times = ComputeTimes(model, job.cluster().flops());
  for (int layer = 0; layer < model.layers_size(); ++layer) {
    model.mutable_layers(layer)->set_forward_ms(kMillisecondsPerSecond * times[layer].forward);
    model.mutable_layers(layer)->set_backward_ms(kMillisecondsPerSecond * times[layer].backward);
  }
  Training& training = *job.mutable_training();
  *training.mutable_replay() = ReplayOf(model);
  training.set_iterations(iterations.warm_up + iterations.counted);
  return job;
}

// Replays vary as simulated machines do, or the two would not be of the same point.
ExperimentPoint Disturbed(ExperimentPoint point) {
  if (IsReplay(point)) DisturbUnlessSaid(*point.job.mutable_cluster());
  return point;
}

std::string Slower(const std::string& bandwidth, int slow_motion) {
  return FormatBitRate(ParseBitRate(bandwidth) / slow_motion);
}

// The same point on machines and links so many times as slow.
ExperimentPoint InSlowMotion(ExperimentPoint point, int factor) {
  if (factor == 1) return point;
  Cluster& cluster = *point.job.mutable_cluster();
  Network& network = *cluster.mutable_network();
  const auto longer = [&](const std::string& duration) {
    return FormatDuration(factor * ParseDuration(duration));
  };
  network.set_bandwidth(Slower(network.bandwidth(), factor));
  network.set_latency(longer(network.latency()));
  network.set_message_cost(longer(network.message_cost()));
  for (Tier& tier : *network.mutable_tier()) {
    tier.set_bandwidth(Slower(tier.bandwidth(), factor));
    tier.set_latency(longer(tier.latency()));
  }
  for (LayerSpec& layer : *point.model.mutable_layers()) {
    layer.set_forward_ms(factor * layer.forward_ms());
    layer.set_backward_ms(factor * layer.backward_ms());
  }
  if (cluster.has_disturbance()) {
    Disturbance& disturbance = *cluster.mutable_disturbance();
    disturbance.set_stall_interval_seconds(factor * disturbance.stall_interval_seconds());
    disturbance.set_stall_seconds(factor * disturbance.stall_seconds());
    disturbance.set_layer_cost(longer(disturbance.layer_cost()));
  }
  cluster.set_flops(cluster.flops() / factor);
  cluster.set_reduction_rate(cluster.reduction_rate() / factor);
  cluster.set_update_rate(cluster.update_rate() / factor);
  for (DeviationList* deviations :
       {cluster.mutable_deviation(), point.condition.mutable_deviation()}) {
    for (Deviation& deviation : *deviations) {
      if (!deviation.has_bandwidth()) continue;
      deviation.set_bandwidth(Slower(deviation.bandwidth(), factor));
    }
  }
  return point;
}

// What the testbed would refuse of a condition's links, which it has as it has the job's own.
std::string WhyNotSuchLinks(Job job, const Condition& condition) {
  if (condition.deviation().empty()) return "";
  // Both may name the same machine, so the condition's deviations come in place of the job's.
  *job.mutable_cluster()->mutable_deviation() = condition.deviation();
  try {
    CheckClusterAndCommunication(job, {});
  } catch (const ConfigError& error) {
    return "in the condition \"" + condition.name() + "\" " + error.what();
  }
  return "";
}

// What the daemons would refuse of a replay that is so many times as slow, or of its links; empty:
// nothing.
std::string WhyNotSoSlow(const ExperimentPoint& point, int slow_motion) {
  const ExperimentPoint slow = InSlowMotion(Disturbed(point), slow_motion);
  try {
    Job job = JobFor(slow, IterationsOf(slow, {}), {"127.0.0.1"});
    CheckClusterAndCommunication(job, {});
    CheckTraining(job, {});
    return WhyNotSuchLinks(std::move(job), slow.condition);
  } catch (const ConfigError& error) {
    return error.what();
  }
}

// At most `wanted`. One that can't be emulated at all fails by itself, whatever the flag says.
int MostSlowMotion(const ExperimentPoint& point, int wanted) {
  if (WhyNotSoSlow(point, wanted).empty() || !WhyNotSoSlow(point, 1).empty()) return wanted;
  int possible = 1;
  int refused = wanted;
  while (refused - possible > 1) {
    const int middle = possible + (refused - possible) / 2;
    (WhyNotSoSlow(point, middle).empty() ? possible : refused) = middle;
  }
  return possible;
}

std::string TextOf(const Job& job) {
  std::string text;
  google::protobuf::TextFormat::PrintToString(job, &text);
  return text;
}

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Makes the directories of `options`; what an earlier attempt has left there is not mistaken for
// results.
void Prepare(const ProcessOptions& options, const Job& job) {
  MakeDirectories(options.directory + "/logs");
  std::filesystem::remove(options.directory + "/summary.json");
  std::filesystem::remove(options.directory + "/" + kJournalFile);
  WriteFileAtomically(options.directory + "/job.prototxt", TextOf(job));
}

PointResult Execute(const ExperimentPoint& point, const ProcessOptions& options, const Job& job,
                    const Iterations& iterations, StartDaemon start,
                    std::vector<std::string> hosts = {}) {
  ProcessClusterOptions cluster;
  cluster.job = job;
  // Those of the job are the workers' own affair.
  for (const Deviation& deviation : point.condition.deviation()) {
    if (deviation.has_compute_factor()) {
      cluster.compute_factors[deviation.worker()] = deviation.compute_factor();
    }
  }
  cluster.start = std::move(start);
  cluster.hosts = std::move(hosts);
  cluster.deadline = options.deadline;
  cluster.interruption = options.interruption;
  RunProcesses(cluster);
  return ReadSummary(ReadAll(options.directory + "/summary.json"), point,
                     IsReplay(point) ? iterations.warm_up : 0);
}

// What payload reaches of a link of the testbed: of a frame's 1514 bytes TCP leaves it 1448.
constexpr double kTestbedGoodputShare = 0.955;

// At which a link of this line rate is shaped, so that payload has the point's share of it.
int64_t ShapedRate(const std::string& bandwidth, const Network& network) {
  const double share = std::min(1.0, network.goodput_share() / kTestbedGoodputShare);
  return static_cast<int64_t>(share * static_cast<double>(ParseBitRate(bandwidth)));
}

std::string LogOf(const ProcessOptions& options, const DaemonCommand& command) {
  return options.directory + "/logs/" + command.name + ".log";
}

}  // namespace

std::optional<std::string> WhyNotEmulated(const ExperimentPoint& point) {
  return WhyNoProcesses(point);
}

std::optional<std::string> WhyNotRun(const ExperimentPoint& point, size_t hosts) {
  const auto needed = static_cast<size_t>(MachinesOf(point.job));
  if (needed > hosts) {
    return "it needs " + std::to_string(needed) + " hosts, and there are " + std::to_string(hosts);
  }
  for (const Deviation& deviation : DeviationsOf(point)) {
    if (deviation.has_bandwidth()) return "links of real machines are as fast as they are";
  }
  return WhyNoProcesses(point);
}

void CheckSlowMotion(const std::vector<const ExperimentPoint*>& points, int slow_motion) {
  if (slow_motion == 1) return;
  int most = slow_motion;
  std::string reason;
  for (const ExperimentPoint* const point : points) {
    if (!IsReplay(*point)) continue;
    const int own = MostSlowMotion(*point, most);
    if (own == most) continue;
    most = own;
    reason = WhyNotSoSlow(*point, most + 1);
  }
  if (most == slow_motion) return;
  throw ConfigError("--slow_motion is " + std::to_string(slow_motion) + "; it must be at most " +
                    std::to_string(most) + ", since with " + std::to_string(most + 1) + " " +
                    reason);
}

TestbedOptions TestbedFor(const ExperimentPoint& point) {
  const Network& network = point.job.cluster().network();
  TestbedOptions testbed;
  testbed.links.assign(MachinesOf(point.job), ShapedRate(network.bandwidth(), network));
  for (const Deviation& deviation : DeviationsOf(point)) {
    if (deviation.has_bandwidth()) {
      testbed.links.at(deviation.worker()) = ShapedRate(deviation.bandwidth(), network);
    }
  }
  for (const Tier& tier : network.tier()) {
    testbed.tiers.push_back({tier.members(), ShapedRate(tier.bandwidth(), network)});
  }
  return testbed;
}

PointResult EmulatePoint(const ExperimentPoint& real, const ProcessOptions& options) {
  ThrowIf(WhyNotEmulated(real));
  const int slow_motion = IsReplay(real) ? options.slow_motion : 1;
  const ExperimentPoint point = InSlowMotion(Disturbed(real), slow_motion);
  const Iterations iterations = IterationsOf(point, options);
  TestbedOptions network = TestbedFor(point);
  network.queue *= slow_motion;
  const NetworkTestbed testbed(network);
  std::vector<std::string> addresses;
  for (int i = MachinesOf(point.job); i >= 0; --i) addresses.push_back(testbed.address(i));
  Job job = JobFor(point, iterations, addresses);
  if (job.training().threads() == 0) {
    job.mutable_training()->set_threads(std::max(1, UsableCores() / job.cluster().workers()));
  }
  Prepare(options, job);
  const auto start = [&](int machine, const DaemonCommand& command) {
    ChildOptions child;
    child.name = command.name;
    child.command = testbed.Enter(machine);
    child.command.push_back(options.programs + "/" + command.program);
    child.command.push_back("--config=" + options.directory + "/job.prototxt");
    child.command.push_back("--out=" + options.directory);
    child.command.insert(child.command.end(), command.flags.begin(), command.flags.end());
    child.log = LogOf(options, command);
    return ChildProcess(std::move(child));
  };
  PointResult result = Execute(point, options, job, iterations, start);
  result.iteration /= slow_motion;
  result.compute /= slow_motion;
  result.predicted /= slow_motion;
  return result;
}

PointResult RunPoint(const ExperimentPoint& real, const ProcessOptions& options,
                     const RemoteOptions& remote) {
  ThrowIf(WhyNotRun(real, remote.hosts.size()));
  const ExperimentPoint point = Disturbed(real);
  const Iterations iterations = IterationsOf(point, options);
  const std::vector<std::string> addresses =
      AddressesAmong({remote.hosts.begin(), remote.hosts.begin() + MachinesOf(real.job)},
                     point.job.has_security());
  Job job = JobFor(point, iterations, addresses);
  if (job.training().threads() == 0) {
    const auto first = remote.hosts.begin();
    job.mutable_training()->set_threads(
        CoresForEachWorker({first, first + job.cluster().workers()}, remote.cores));
  }
  Prepare(options, job);
  const std::string text_for_hosts = TextOf(WithKeyInside(job));
  RemoteShell shell = MakeRemoteShell(remote.shell, remote.programs);
  shell.directory = remote.directory;
  const int machines = MachinesOf(job);
  std::vector<std::string> names;
  for (int machine = 0; machine < machines; ++machine) names.push_back(remote.hosts[machine].name);
  names.push_back(remote.hosts[0].name);
  const auto start = [&](int machine, const DaemonCommand& command) {
    const bool scheduler = machine == machines;
    const Host& host = remote.hosts[scheduler ? 0 : machine];
    RemoteCommand started;
    started.name = command.name;
    started.host = host.name;
    started.command = {remote.programs + "/" + command.program};
    started.command.insert(started.command.end(), command.flags.begin(), command.flags.end());
    if (!scheduler && host.address != host.name) {
      started.command.push_back("--host=" + addresses[machine]);
    }
    started.job = text_for_hosts;
    started.log = LogOf(options, command);
    if (scheduler) {
      started.result = "summary.json";
      started.output = options.directory + "/summary.json";
    }
    return StartRemotely(shell, started);
  };
  return Execute(point, options, job, iterations, start, names);
}

}  // namespace poseidon
