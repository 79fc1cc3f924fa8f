#include "launch/doctor/host_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include "core/net/ip_networks.h"
#include "launch/job_cluster.h"
#include "transport/membership/node_setup.h"

namespace poseidon {
namespace {

std::string Seconds1(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", seconds);
  return text;
}

// "1.2 GB".
std::string BytesText(int64_t bytes) {
  constexpr double kStep = 1000;
  const char* const units[] = {"B", "KB", "MB", "GB", "TB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= kStep && unit + 1 < std::size(units)) {
    value /= kStep;
    ++unit;
  }
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
  return text;
}

// What one check has found; a sentence that all is well if nothing else.
class Report {
 public:
  explicit Report(std::string check) : check_(std::move(check)) {}

  void Warn(const std::string& text, const std::string& mend) {
    findings_.push_back({FindingLevel::kWarning, check_, text, mend});
  }
  void Fail(const std::string& text, const std::string& mend) {
    findings_.push_back({FindingLevel::kError, check_, text, mend});
  }
  Findings Done(const std::string& good) && {
    if (findings_.empty()) findings_.push_back({FindingLevel::kGood, check_, good});
    return std::move(findings_);
  }

 private:
  std::string check_;
  Findings findings_;
};

std::string CountText(const CheckedHosts& hosts) {
  return hosts.size() == 1 ? "on " + hosts.front().name
                           : "on all " + std::to_string(hosts.size()) + " hosts";
}

// The values of `hosts`, each once, with who has it: "cubic on node0, bbr on node1, node2".
std::string Values(const CheckedHosts& hosts,
                   const std::function<std::string(const CheckedHost&)>& value) {
  std::map<std::string, std::string> names;
  for (const CheckedHost& host : hosts) {
    std::string& list = names[value(host)];
    list += (list.empty() ? "" : ", ") + host.name;
  }
  std::string text;
  for (const auto& [found, list] : names)
    text += (text.empty() ? "" : "; ") + found + " on " + list;
  return text;
}

bool HasAddress(const HostFacts& facts, const std::string& address) {
  return std::any_of(facts.interfaces.begin(), facts.interfaces.end(),
                     [&](const NetworkInterface& own) { return own.address == address; });
}

// The interface by which a host reaches the others; nothing if all are on this machine, or it could
// not be found out.
const NetworkInterface* LeadingInterface(const CheckedHost& host) {
  for (const auto& [name, device] : host.facts.routes) {
    if (device == "lo") continue;
    const auto found =
        std::find_if(host.facts.interfaces.begin(), host.facts.interfaces.end(),
                     [&device = device](const auto& one) { return one.name == device; });
    if (found != host.facts.interfaces.end()) return &*found;
  }
  return nullptr;
}

// ": 10.0.0.1 or 10.0.0.2", those that it has; nothing where it has none by which others could
// reach it.
std::string OwnAddressesText(const HostFacts& facts) {
  std::string text;
  for (const NetworkInterface& one : facts.interfaces) {
    if (IsLoopbackName(one.address) || one.address.starts_with("fe80:")) continue;
    text += (text.empty() ? ": " : " or ") + one.address;
  }
  return text;
}

bool HasProgram(const HostFacts& facts, const std::string& program) {
  const auto found = facts.programs.find(program);
  return found != facts.programs.end() && !found->second.empty();
}

bool NeedsProgram(const CheckedHost& host, const HostFacts& here, const std::string& program) {
  if (program == "poseidon_worker") return host.workers > 0;
  if (program == "poseidon_server") return host.servers > 0;
  // Where this machine lacks it no job needs it, and where the programs are missing that is told.
  return program == kPreloadedLibrary && host.workers > 0 && HasProgram(here, program) &&
         HasProgram(host.facts, "poseidon_worker");
}

}  // namespace

Findings CheckVersions(const HostFacts& here, const CheckedHosts& hosts) {
  Report report("versions");
  for (const CheckedHost& host : hosts) {
    const std::string copy = "copy this machine's programs to " + host.name + ", as by rsync -a";
    for (const auto& [program, sum] : host.facts.programs) {
      if (!NeedsProgram(host, here, program)) continue;
      const auto own = here.programs.find(program);
      if (sum.empty() && program == kPreloadedLibrary) {
        report.Warn("there is no " + program + " on " + host.name +
                        ", which makes a program of yours a worker (poseidon run -- PROGRAM)",
                    copy);
      } else if (sum.empty()) {
        report.Fail("there is no " + program + " on " + host.name,
                    copy + ", or give --remote_programs");
      } else if (const auto broken = host.facts.broken.find(program);
                 broken != host.facts.broken.end()) {
        report.Fail(program + " does not start on " + host.name +
                        (broken->second.empty() ? "" : ": " + broken->second),
                    "install the package poseidon there, or run tools/setup of the repository");
      } else if (here.version && host.facts.version && here.version != host.facts.version) {
        report.Fail(
            host.name + " has " + *host.facts.version + ", and this machine " + *here.version,
            copy);
      } else if (own != here.programs.end() && own->second != sum) {
        // The version has a hash of all sources.
        const bool same = here.version && host.facts.version;
        report.Warn(
            program + " on " + host.name +
                (same ? " is another file than this machine's, though both have " + *here.version +
                            ": it was compiled differently, or copied by itself"
                      : " is another build than this machine's"),
            copy);
      }
    }
  }
  return std::move(report).Done("the same programs " + CountText(hosts) + " as here" +
                                (here.version ? ", " + *here.version : ""));
}

Findings CheckFiles(const HostFacts& here, const CheckedHosts& hosts) {
  Report report("files");
  for (const CheckedHost& host : hosts) {
    if (host.workers == 0) continue;
    for (const auto& [path, sum] : host.facts.files) {
      const std::string copy =
          "copy it to the same path on " + host.name + ", as by rsync -aR " + path;
      const auto own = here.files.find(path);
      if (sum.empty()) {
        const std::string where =
            host.facts.has_working_directory ? "" : ", which lacks this working directory, too";
        report.Fail(path + " can't be read on " + host.name + where, copy);
      } else if (own != here.files.end() && own->second != sum) {
        report.Fail(path + " on " + host.name + " is not this machine's", copy);
      }
    }
  }
  return std::move(report).Done("solver and nets are the same " + CountText(hosts));
}

// The name under which the others know a host is to be an address of the interface by which it
// reaches them: else data go by another network than they come.
void CheckInterface(const CheckedHost& host, Report& report) {
  const NetworkInterface* const leading = LeadingInterface(host);
  const auto own = host.facts.resolved.find(host.address);
  if (leading == nullptr || own == host.facts.resolved.end()) return;
  const auto named =
      std::find_if(host.facts.interfaces.begin(), host.facts.interfaces.end(),
                   [&](const NetworkInterface& one) { return one.address == own->second; });
  if (named == host.facts.interfaces.end() || named->name == leading->name ||
      IsLoopbackName(own->second)) {
    return;
  }
  report.Warn(host.address + " is " + named->name + " of " + host.name +
                  ", which reaches the others by " + leading->name,
              "write " + leading->address + " behind " + host.name +
                  " in the hosts file, or the addresses of the network of " + named->name +
                  " behind all");
}

void CheckAsked(const CheckedHost& host, Report& report) {
  const std::vector<std::string>& unasked = host.facts.unasked;
  if (unasked.empty()) return;
  const std::string others =
      unasked.size() == 1 ? "" : " and " + std::to_string(unasked.size() - 1) + " other(s)";
  report.Warn(
      host.name + " finds names so slowly that it had no time for " + unasked.front() + others,
      "look at its name servers (/etc/resolv.conf there), or write addresses behind the "
      "names in the hosts file");
}

Findings CheckNames(const CheckedHosts& hosts) {
  Report report("names");
  for (const CheckedHost& host : hosts) CheckInterface(host, report);
  for (const CheckedHost& host : hosts) CheckAsked(host, report);
  for (const CheckedHost& named : hosts) {
    std::map<std::string, std::string> found;  // by address: who finds it there
    for (const CheckedHost& asking : hosts) {
      const auto address = asking.facts.resolved.find(named.address);
      if (address == asking.facts.resolved.end()) continue;
      if (address->second.empty()) {
        report.Fail(asking.name + " does not find " + named.address,
                    "write the address of " + named.name + " behind its name in the hosts file");
        continue;
      }
      const bool own = asking.name == named.name;
      if (own && IsLoopbackName(address->second) && hosts.size() > 1 &&
          !IsLoopbackName(hosts.front().address) && !IsLoopbackName(named.address)) {
        // Daemons there take the address of the interface that leads to the scheduler.
        report.Warn(named.name + " takes its own name for " + address->second +
                        ", at which the others do not reach it; daemons do without the name, and "
                        "programs of yours may not",
                    "remove that line from /etc/hosts there, or write the address of " +
                        named.name + " behind its name in the hosts file");
      } else if (own && !IsLoopbackName(address->second) && !asking.facts.interfaces.empty() &&
                 !HasAddress(asking.facts, address->second)) {
        const std::string means =
            named.address == address->second ? "" : ", which " + named.address + " means";
        report.Warn(named.name + " has no interface with " + address->second + means +
                        "; unless a network translates it, no node reaches it",
                    "write the address of " + named.name + " behind its name in the hosts file" +
                        OwnAddressesText(asking.facts));
      } else {
        std::string& who = found[address->second];
        who += (who.empty() ? "" : ", ") + asking.name;
      }
    }
    if (found.size() < 2) continue;
    std::string text = named.address + " means";
    for (const auto& [address, who] : found) {
      text += std::string(address == found.begin()->first ? " " : "; ") + address + " on " + who;
    }
    report.Fail(text, "write the address of " + named.name + " behind its name in the hosts file");
  }
  return std::move(report).Done("every name means the same address " + CountText(hosts));
}

Findings CheckClocks(const CheckedHosts& hosts) {
  constexpr double kMost = 1;
  Report report("clocks");
  double largest = 0;
  for (const CheckedHost& host : hosts) {
    if (!host.facts.clock) {
      report.Warn("the clock of " + host.name + " can't be read", "look at `date` there");
      continue;
    }
    // It was read some time between question and answer.
    const double ahead = *host.facts.clock - host.answered;
    const double behind = host.asked - *host.facts.clock;
    const double off = std::max({ahead, behind, 0.0});
    largest = std::max(largest, off);
    if (off < kMost) continue;
    // No error, for jobs run all the same: they only use steady clocks.
    report.Warn("the clock of " + host.name + " is " + Seconds1(off) + " s " +
                    (ahead > 0 ? "ahead" : "behind"),
                "timedatectl set-ntp true    # on " + host.name);
  }
  return std::move(report).Done("within a second of this machine's " + CountText(hosts));
}

Findings CheckLimits(const CheckedHosts& hosts, const JobNeeds& needs) {
  constexpr int64_t kThreadsOfNode = 16;
  Report report("limits");
  const int64_t files = OpenFilesOf(needs.nodes, needs.lanes);
  for (const CheckedHost& host : hosts) {
    const HostFacts& facts = host.facts;
    if (!facts.open_files || !facts.processes) {
      report.Warn("the limits of " + host.name + " can't be read", "look at `ulimit -a` there");
      continue;
    }
    if (*facts.open_files >= 0 && *facts.open_files < files) {
      report.Fail("a process on " + host.name + " may open " + std::to_string(*facts.open_files) +
                      " files, and this job needs " + std::to_string(files),
                  "raise nofile in /etc/security/limits.conf (ulimit -Hn) on " + host.name);
    }
    const int64_t threads =
        (kThreadsOfNode + int64_t{2} * needs.lanes) * (host.workers + host.servers);
    if (*facts.processes >= 0 && *facts.processes < threads) {
      report.Fail("this user may start " + std::to_string(*facts.processes) + " threads on " +
                      host.name + ", and this job needs " + std::to_string(threads),
                  "raise nproc in /etc/security/limits.conf (ulimit -u) on " + host.name);
    }
  }
  return std::move(report).Done("enough open files and threads " + CountText(hosts));
}

Findings CheckMemory(const CheckedHosts& hosts, const JobNeeds& needs) {
  Report report("memory");
  int64_t most = 0;
  for (const CheckedHost& host : hosts) {
    const int64_t needed =
        host.workers * needs.bytes_per_worker + host.servers * needs.bytes_per_server;
    most = std::max(most, needed);
    if (!host.facts.memory) {
      report.Warn("the memory of " + host.name + " can't be read", "look at `free` there");
      continue;
    }
    const std::string text = host.name + " has " + BytesText(*host.facts.memory) +
                             " of memory left, and parameters, gradients and optimizer state of "
                             "its nodes take " +
                             BytesText(needed);
    if (*host.facts.memory < needed) {
      report.Fail(text, "give it fewer slots, or end what else runs there");
    } else if (*host.facts.memory < 2 * needed) {
      report.Warn(text + ", without what the layers compute", "give it fewer slots if it swaps");
    }
  }
  return std::move(report).Done(BytesText(most) + " at most for the model's share " +
                                CountText(hosts));
}

Findings CheckDisks(const CheckedHosts& hosts, const CheckedHost& first, const JobNeeds& needs,
                    const std::string& temporary_directory) {
  // The job's file, and traces.
  constexpr int64_t kJobBytes = 64 << 20;
  // The newest is there whole before the one before can be removed.
  constexpr int64_t kSnapshots = 2;
  Report report("disks");
  const auto check = [&](const CheckedHost& host, const std::string& directory, int64_t bytes,
                         const std::string& what) {
    const auto room = host.facts.rooms.find(directory);
    if (room == host.facts.rooms.end()) {
      report.Warn("the room in " + directory + " on " + host.name + " can't be found out",
                  "look at `df " + directory + "` there");
    } else if (!room->second.writable) {
      report.Fail("this user may not write to " + directory + " on " + host.name,
                  "chown or chmod it there");
    } else if (room->second.bytes < bytes) {
      report.Fail(directory + " on " + host.name + " has room for " +
                      BytesText(room->second.bytes) + ", and " + what + " take " + BytesText(bytes),
                  "make room there");
    }
  };
  for (const CheckedHost& host : hosts) {
    check(host, temporary_directory, kJobBytes, "the job's files");
  }
  if (!needs.snapshot_directory.empty()) {
    check(first, needs.snapshot_directory, kSnapshots * needs.snapshot_bytes, "two snapshots");
  }
  return std::move(report).Done(needs.snapshot_directory.empty()
                                    ? "room for the job's files " + CountText(hosts)
                                    : "room for snapshots of " + BytesText(needs.snapshot_bytes) +
                                          " on " + first.name);
}

Findings CheckData(const CheckedHosts& hosts) {
  Report report("data");
  size_t sources = 0;
  for (const CheckedHost& host : hosts) {
    if (host.workers == 0) continue;
    sources = std::max(sources, host.facts.data.size());
    for (const auto& [path, readable] : host.facts.data) {
      if (readable) continue;
      report.Fail(
          path + " can't be read on " + host.name +
              (host.facts.has_working_directory ? ""
                                                : ", which does not have this working directory"),
          "copy it to the same path there, or make data there (poseidon convert)");
    }
  }
  return std::move(report).Done(sources == 0 ? "the job reads none"
                                             : "can be read " + CountText(hosts));
}

Findings CheckGpus(const CheckedHosts& hosts, const JobNeeds& needs) {
  Report report("gpus");
  if (!needs.gpus) return std::move(report).Done("the job computes on CPUs");
  std::set<std::string> drivers;
  for (const CheckedHost& host : hosts) {
    const auto wanted =
        static_cast<size_t>(host.workers) * static_cast<size_t>(needs.gpus_per_worker);
    if (wanted == 0) continue;
    for (const Gpu& gpu : host.facts.gpus) drivers.insert(gpu.driver);
    if (host.facts.gpus.empty()) {
      report.Fail("nvidia-smi shows no GPU on " + host.name,
                  "install NVIDIA's driver there, or set training.device to CPU");
    } else if (host.facts.gpus.size() < wanted) {
      report.Fail(host.name + " has " + std::to_string(host.facts.gpus.size()) +
                      " GPU(s), and its workers want " + std::to_string(wanted),
                  "give it fewer slots, or its workers fewer devices "
                  "(cluster.devices_per_worker)");
    }
  }
  if (drivers.size() > 1) {
    report.Warn("drivers differ: " + Values(hosts,
                                            [](const CheckedHost& host) {
                                              return host.facts.gpus.empty()
                                                         ? std::string("none")
                                                         : host.facts.gpus.front().driver;
                                            }),
                "install the same driver on all");
  }
  return std::move(report).Done("enough of them " + CountText(hosts) +
                                (drivers.empty() ? "" : ", driver " + *drivers.begin()));
}

Findings CheckQueues(const CheckedHosts& hosts) {
  Report report("queues");
  std::set<std::string> controls;
  for (const CheckedHost& host : hosts) {
    controls.insert(host.facts.congestion_control.value_or("unknown"));
  }
  const auto control = [](const CheckedHost& host) {
    return host.facts.congestion_control.value_or("unknown");
  };
  if (controls.size() > 1) {
    report.Warn("congestion control differs: " + Values(hosts, control) +
                    "; one kind takes the other's share of a link",
                "sysctl -w net.ipv4.tcp_congestion_control=cubic    # on all");
  }
  std::set<std::string> disciplines;
  for (const CheckedHost& host : hosts) {
    const NetworkInterface* const interface = LeadingInterface(host);
    if (interface == nullptr || interface->queueing_discipline.empty()) continue;
    const std::string& discipline = interface->queueing_discipline;
    disciplines.insert(discipline);
    // One queue for all connections: which of them gets on is chance.
    if (discipline != "pfifo_fast" && discipline != "pfifo" && discipline != "bfifo") continue;
    report.Warn(interface->name + " on " + host.name + " has one queue for all connections (" +
                    discipline + "), so that some receivers fall behind others",
                "tc qdisc replace dev " + interface->name + " root fq_codel    # on " + host.name);
  }
  return std::move(report).Done(*controls.begin() +
                                (disciplines.empty() ? "" : ", " + *disciplines.begin()) + " " +
                                CountText(hosts));
}

Findings CheckMtu(const CheckedHosts& hosts) {
  Report report("mtu");
  std::set<int> sizes;
  const auto size_of = [](const CheckedHost& host) {
    const NetworkInterface* const interface = LeadingInterface(host);
    return interface == nullptr ? 0 : interface->mtu;
  };
  for (const CheckedHost& host : hosts) {
    if (size_of(host) > 0) sizes.insert(size_of(host));
    if (host.facts.whole_packets == false) {
      report.Fail("packets of " + host.name + " that are as large as its MTU do not arrive",
                  "ip link set dev INTERFACE mtu 1500    # on all, or let the switch pass larger "
                  "ones");
    }
  }
  if (sizes.size() > 1) {
    report.Warn(
        "differs: " +
            Values(hosts, [&](const CheckedHost& host) { return std::to_string(size_of(host)); }),
        "ip link set dev INTERFACE mtu " + std::to_string(*sizes.begin()) + "    # on all");
  }
  return std::move(report).Done(sizes.empty() ? "no network between the hosts"
                                              : std::to_string(*sizes.begin()) + " bytes " +
                                                    CountText(hosts));
}

}  // namespace poseidon
