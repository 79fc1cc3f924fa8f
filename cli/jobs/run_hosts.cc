#include "cli/jobs/run_hosts.h"

#include <algorithm>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "cli/input/flags.h"
#include "cli/input/input_file.h"
#include "core/net/host_address.h"
#include "core/net/ip_networks.h"
#include "core/process/program_directory.h"
#include "core/steady_now.h"
#include "launch/host_query.h"
#include "launch/remote_shell.h"
#include "proto/lanes.h"
#include "transport/membership/node_setup.h"

namespace poseidon {
namespace {

// ssh gives up before.
constexpr Duration kAnswerDeadline = Seconds(20);

// A machine that is started again has time for that, and to look at its disks.
constexpr Duration kHostsDeadline = Seconds(600);
constexpr Duration kBetweenLooks = Seconds(2);

// Between two attempts of Linux's TCP to repeat what was lost (TCP_RTO_MAX).
constexpr Duration kLongestRepeat = Seconds(120);

// What a host is to have.
struct HostPrograms {
  std::set<std::string> needed;  // paths
  std::string library;           // that makes a program a worker; empty: none is needed
};

std::string ScriptFor(const HostPrograms& host) {
  std::string script = kAllowanceFunctions;
  for (const std::string& path : host.needed) {
    script +=
        "[ -x " + ShellQuoted(path) + " ] || echo missing program " + ShellQuoted(path) + "\n";
  }
  // Without it one that knows nothing of jobs would train alone.
  if (!host.library.empty()) {
    script += "[ -r " + ShellQuoted(host.library) + " ] || echo missing library " +
              ShellQuoted(host.library + ", which makes a program a worker,") + "\n";
  }
  return script + "echo cores $(usable_cores)\n";
}

std::string WhyUnreachable(const std::string& name, const HostAnswer& answer) {
  return name + " can't be reached: " + answer.failure + "; " + HowToReach(name, answer.failure);
}

// What is wrong with a host's answer, as sentences' parts; takes the number of cores from it.
std::vector<std::string> Problems(const std::string& name, const HostAnswer& answer, int& cores) {
  if (!answer.failure.empty()) return {WhyUnreachable(name, answer)};
  std::vector<std::string> problems;
  std::istringstream lines(answer.text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "cores") words >> cores;
    if (key != "missing") continue;
    problems.push_back("there is no " + line.substr(key.size() + 1) + " on " + name +
                       "; copy the programs there, or say where they are by --remote_programs");
  }
  return problems;
}

// Looks at all hosts at once, and takes their cores. Throws Error with all that is wrong.
std::map<std::string, int> LookAt(const RemoteShell& shell,
                                  const std::map<std::string, HostPrograms>& hosts,
                                  Interruption& interruption) {
  std::vector<HostQuestion> questions;
  for (const auto& [name, host] : hosts) questions.push_back({name, ScriptFor(host)});
  const std::vector<HostAnswer> answers =
      AskHosts(shell, questions, kAnswerDeadline, &interruption);
  std::map<std::string, int> cores;
  std::string all;
  for (size_t i = 0; i < questions.size(); ++i) {
    const std::string& name = questions[i].host;
    for (const std::string& problem : Problems(name, answers[i], cores[name])) {
      all += (all.empty() ? "" : "\n  ") + problem;
    }
  }
  if (!all.empty()) throw Error(ExitCode::kFailure, all);
  return cores;
}

// Who does not answer and why, a line each.
std::string Unreachable(const JobHosts& hosts, Interruption& interruption) {
  std::vector<Host> all = hosts.ranks.workers;
  all.insert(all.end(), hosts.ranks.servers.begin(), hosts.ranks.servers.end());
  std::vector<HostQuestion> questions;
  for (const std::string& name : NamesOf(all)) questions.push_back({name, "true"});
  const std::vector<HostAnswer> answers =
      AskHosts(hosts.shell, questions, kAnswerDeadline, &interruption);
  std::string unreachable;
  for (size_t i = 0; i < questions.size(); ++i) {
    if (answers[i].failure.empty()) continue;
    unreachable += "\n  " + WhyUnreachable(questions[i].host, answers[i]);
  }
  return unreachable;
}

// The address at which the host reaches this machine.
std::string OwnAddressFor(const Host& host) {
  const std::vector<std::string> addresses = AddressesOf(host.address);
  if (addresses.empty()) {
    throw ConfigError(FLAGS_hosts + ": \"" + host.address +
                      "\" is no address that this machine can find; write the address of " +
                      host.name + " behind its name");
  }
  const auto own = OwnAddressTowards(addresses.front());
  if (own) return *own;
  throw ConfigError(FLAGS_hosts + ": no route leads from this machine to " + host.name + " (" +
                    addresses.front() + "); is the network up?");
}

RemoteShell ShellOf(const std::string& command) {
  return MakeRemoteShell(command,
                         FlagGiven("remote_programs") ? FLAGS_remote_programs : ProgramDirectory());
}

}  // namespace

bool HostsGiven() {
  if (FlagGiven("hosts") && FLAGS_hosts.empty()) {
    throw ConfigError("--hosts is empty; name a file, or leave it out");
  }
  if (!FLAGS_hosts.empty()) return true;
  for (const char* const flag : {"remote_shell", "remote_programs"}) {
    if (!FlagGiven(flag)) continue;
    throw ConfigError(std::string("--") + flag +
                      " is about the hosts of --hosts; give --hosts=FILE, too, or leave it out");
  }
  return false;
}

RemoteShell ShellFromFlags() { return ShellOf(FLAGS_remote_shell); }

HostRanks RanksFromFlags(const Cluster& cluster) {
  return AssignRanks(ReadHosts(CheckInputFile(FLAGS_hosts)), cluster.workers(), cluster.servers(),
                     cluster.network().colocated(), FLAGS_hosts);
}

std::string SchedulerHost(const JobConfig& config, const std::vector<Host>& hosts) {
  const Cluster& cluster = config.job.cluster();
  const std::string& wanted = cluster.scheduler_host();
  if (cluster.has_scheduler_host() && !IsOwnAddress(wanted)) {
    throw ConfigError(config.path + ": cluster.scheduler_host is \"" + wanted +
                      "\", and with --hosts the scheduler runs on this machine, which does not "
                      "have that address; start poseidon there, or leave the field out");
  }
  std::string found;
  for (const Host& host : hosts) {
    found = OwnAddressFor(host);
    if (!IsLoopbackName(found)) break;
  }
  if (!cluster.has_scheduler_host()) return found;
  const std::string address = ResolveHost(wanted);
  if (IsLoopbackName(address) && !IsLoopbackName(found)) {
    throw ConfigError(config.path + ": cluster.scheduler_host is \"" + wanted + "\", which is " +
                      address + " on this machine, where other hosts do not reach it; write " +
                      found + ", or leave the field out");
  }
  return wanted;
}

void SetNodesFromFlags(Cluster& cluster) {
  const auto nodes = [](const char* flag, int value, int configured) {
    if (!FlagGiven(flag)) return configured;
    if (value >= 1) return value;
    throw ConfigError(std::string("--") + flag + " is " + std::to_string(value) +
                      "; it must be at least 1");
  };
  cluster.set_workers(nodes("workers", FLAGS_workers, cluster.workers()));
  cluster.set_servers(nodes("servers", FLAGS_servers, cluster.servers()));
}

JobConfig JobConfigFromFlags() {
  return ReadJobConfig(CheckInputFile(FLAGS_config), [](Job& job) {
    SetNodesFromFlags(*job.mutable_cluster());
    // Before the checks: ports and files of a monitor that there won't be may be anything.
    if (!FLAGS_monitor) job.clear_monitor();
  });
}

std::string HowToReach(const std::string& host, const std::string& failure) {
  const auto said = [&](const char* words) { return failure.find(words) != std::string::npos; };
  // Commands on hosts ask nobody anything, so a user is to do once what ssh would ask for. The
  // flags of a remote shell of the user's own may be what keeps it from asking.
  const std::string alike =
      FlagGiven("remote_shell") ? ", with the port and files of your --remote_shell," : "";
  if (said("Host key verification failed")) {
    return "`ssh " + host + "`" + alike + " shows its key and asks whether to trust it";
  }
  if (said("Permission denied (")) {
    return "`ssh-copy-id " + host + "`" + alike + " brings your key there";
  }
  return "make `" + FLAGS_remote_shell + " " + host + " true` work";
}

bool AwaitHosts(const JobHosts& hosts, Interruption& interruption) {
  const Time deadline = SteadyNow() + kHostsDeadline;
  std::string told;
  for (;; Pause(kBetweenLooks, interruption)) {
    const std::string unreachable = Unreachable(hosts, interruption);
    if (unreachable.empty()) return true;
    const bool late = SteadyNow() >= deadline;
    if (late || unreachable != told) {
      std::cout << (late ? "gave up waiting for all hosts to answer, after "
                         : "waiting until all hosts answer, for at most ")
                << static_cast<int>(ToSeconds(kHostsDeadline)) << " s:" << unreachable << std::endl;
    }
    if (late) return false;
    told = unreachable;
  }
}

JobHosts HostsFromFlags(JobConfig& config, const std::string& worker, Interruption& interruption) {
  JobHosts job_hosts = {RanksFromFlags(config.job.cluster()), ShellFromFlags()};
  std::vector<Host> all = job_hosts.ranks.workers;
  all.insert(all.end(), job_hosts.ranks.servers.begin(), job_hosts.ranks.servers.end());
  config.job.mutable_cluster()->set_scheduler_host(SchedulerHost(config, all));
  std::map<std::string, HostPrograms> hosts;
  for (const Host& host : job_hosts.ranks.workers) {
    HostPrograms& there = hosts[host.name];
    if (worker.empty()) {
      there.library = PreloadedLibraryThere(job_hosts.shell);
    } else {
      there.needed.insert(job_hosts.shell.programs + "/" + worker);
    }
  }
  for (const Host& host : job_hosts.ranks.servers) {
    hosts[host.name].needed.insert(job_hosts.shell.programs + "/poseidon_server");
  }
  const int cores =
      CoresForEachWorker(job_hosts.ranks.workers, LookAt(job_hosts.shell, hosts, interruption));
  Training& training = *config.job.mutable_training();
  if (training.threads() == 0) training.set_threads(cores);
  if (!config.job.cluster().has_cores() && PlansLanes(config.job)) {
    config.job.mutable_cluster()->set_cores(cores);
  }
  // Through a network that fails for a while, connections last as the job does: who is lost
  // meanwhile its scheduler gives up. What was lost in a connection TCP repeats after up to as long
  // again, or two minutes, and only then a host is heard.
  const std::optional<Duration> silence = SchedulerDeadline(config.job);
  if (silence && !FlagGiven("remote_shell")) {
    const Duration heard_after = *silence + std::min(*silence, kLongestRepeat);
    job_hosts.shell = ShellOf(DefaultRemoteShell(heard_after + kRemoteSilence));
  }
  return job_hosts;
}

}  // namespace poseidon
