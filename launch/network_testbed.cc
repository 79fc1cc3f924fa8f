#include "launch/network_testbed.h"

#include <glog/logging.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "core/child_process.h"
#include "core/error.h"

namespace poseidon {
namespace {

// Where `ip netns` keeps the names.
constexpr const char* kNamespaces = "/var/run/netns";
constexpr const char* kPrefix = "poseidon-";
constexpr const char* kSwitch = "switch";
constexpr const char* kCore = "core";

// What Linux has by default. A machine's own default may be another one, whose results would not
// compare.
constexpr const char* kCongestionControl = "cubic";

// 96 KiB: above the largest packet that TCP hands to a link in one piece (64 KiB and headers),
// which tbf would otherwise cut up, and what passes during a timer's delay. 0.8 ms of 1 Gb/s, so
// that in any 10 ms at most 8% more than the rate passes.
constexpr int64_t kBurstBytes = 98304;

// Of the traffic classes of a machine's own link, whose numbers have 16 bits: the link itself, what
// goes to the machine without a limit and to nobody in particular, and what goes to each machine.
constexpr int kLinkClass = 1;
constexpr int kOthersClass = 2;
constexpr int kFirstPeerClass = 3;

// 10.99.0.0/16, where a namespace has nothing else.
constexpr int kSubnetBits = 16;
constexpr const char* kSubnet = "10.99.0.0/16";
constexpr int kMostMachines = 65000;  // that have an address there

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A file's name for a while.
class TemporaryFile {
 public:
  TemporaryFile() {
    const int descriptor = mkstemp(path_.data());
    if (descriptor < 0) throw Error(ExitCode::kFailure, "can't make a file in /tmp");
    close(descriptor);
  }
  ~TemporaryFile() { unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/poseidon-network.XXXXXX";
};

std::string Join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

// What passes a link in a time.
int64_t BytesIn(Duration time, int64_t bits_per_second) {
  const double seconds = std::chrono::duration<double>(time).count();
  return static_cast<int64_t>(seconds * static_cast<double>(bits_per_second) / 8);
}

// As tc wants the numbers of classes.
std::string Hex(int number) {
  std::ostringstream text;
  text << std::hex << number;
  return text.str();
}

// What the command says. Throws Error with that if it fails.
std::string Call(const std::vector<std::string>& command) {
  const TemporaryFile said;
  ChildOptions options;
  options.name = command.front();
  options.command = command;
  options.log = said.path();
  const ExitStatus status = ChildProcess(std::move(options)).Wait();
  std::string text = ReadAll(said.path());
  if (status.ok()) return text;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  throw Error(ExitCode::kFailure, "can't make the network: \"" + Join(command) + "\" " +
                                      status.ToString() + ": " + text);
}

// Kills what is in the namespace and removes it.
void RemoveNamespace(const std::string& ip, const std::string& name) noexcept {
  try {
    std::istringstream pids(Call({ip, "netns", "pids", name}));
    for (pid_t pid = 0; pids >> pid;) kill(pid, SIGKILL);
    Call({ip, "netns", "del", name});
  } catch (const std::exception& error) {
    LOG(WARNING) << "a network namespace is left: " << error.what();
  }
}

// The process that has made a namespace of this name; 0: it is not one of ours.
pid_t MakerOf(const std::string& name) {
  const std::string_view prefix = kPrefix;
  if (name.compare(0, prefix.size(), prefix) != 0) return 0;
  pid_t pid = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, failure] = std::from_chars(name.data() + prefix.size(), end, pid);
  return failure == std::errc() && rest != end && *rest == '-' ? pid : 0;
}

// Those whose program was killed before it could remove them, or that had this process's number.
void RemoveLeftOvers(const std::string& ip) {
  std::vector<std::string> names;
  std::error_code none_yet;
  for (const auto& entry : std::filesystem::directory_iterator(kNamespaces, none_yet)) {
    names.push_back(entry.path().filename().string());
  }
  for (const std::string& name : names) {
    const pid_t maker = MakerOf(name);
    if (maker <= 0) continue;
    const bool gone = kill(maker, 0) != 0 && errno == ESRCH;
    if (gone || maker == getpid()) RemoveNamespace(ip, name);
  }
}

}  // namespace

void CheckCanMakeTestbed() {
  if (geteuid() != 0) {
    throw Error(ExitCode::kFailure, "a network of namespaces needs root; run this as root");
  }
  for (const char* const program : {"ip", "tc"}) FindProgram(program);
}

NetworkTestbed::NetworkTestbed(const TestbedOptions& options)
    : prefix_(kPrefix + std::to_string(getpid()) + "-"),
      queue_(options.queue),
      machines_(static_cast<int>(options.links.size())) {
  CheckCanMakeTestbed();
  if (options.links.size() >= kMostMachines) {
    throw Error(ExitCode::kFailure, "a network of namespaces has at most 65000 machines");
  }
  ip_ = FindProgram("ip");
  tc_ = FindProgram("tc");
  RemoveLeftOvers(ip_);
  try {
    Build(options);
  } catch (...) {
    Remove();
    throw;
  }
}

NetworkTestbed::~NetworkTestbed() { Remove(); }

void NetworkTestbed::Remove() noexcept {
  while (!names_.empty()) {
    RemoveNamespace(ip_, names_.back());
    names_.pop_back();
  }
}

std::string NetworkTestbed::address(int machine) const {
  const int number = machine + 1;  // the subnet's first address is its own name
  return "10.99." + std::to_string(number / 256) + "." + std::to_string(number % 256);
}

std::vector<std::string> NetworkTestbed::Enter(int machine) const {
  return {ip_, "netns", "exec", NameOf(std::to_string(machine))};
}

void NetworkTestbed::Build(const TestbedOptions& options) {
  AddNamespace(kSwitch);
  AddBridge(kCore);
  // From the core outwards: a group's bridge is joined to that of the group it is in.
  const auto bridge_of = [&](int tier, int group) {
    return tier == static_cast<int>(options.tiers.size())
               ? std::string(kCore)
               : "tier" + std::to_string(tier) + "-" + std::to_string(group);
  };
  std::vector<int> groups = {machines_};  // of each tier, those of its uplinks; machines first
  for (const TestbedTier& tier : options.tiers) {
    groups.push_back((groups.back() + tier.members - 1) / tier.members);
  }
  for (int tier = static_cast<int>(options.tiers.size()) - 1; tier >= 0; --tier) {
    const bool outermost = tier + 1 == static_cast<int>(options.tiers.size());
    for (int group = 0; group < groups[tier + 1]; ++group) {
      const std::string bridge = bridge_of(tier, group);
      AddBridge(bridge);
      AddUplink(bridge,
                bridge_of(tier + 1, outermost ? 0 : group / options.tiers[tier + 1].members),
                options.tiers[tier].bits_per_second);
    }
  }
  for (int machine = 0; machine < machines_; ++machine) {
    AddMachine(machine,
               bridge_of(0, options.tiers.empty() ? 0 : machine / options.tiers[0].members),
               options.links[machine]);
  }
  AddMachine(machines_, kCore, 0);
}

void NetworkTestbed::AddNamespace(const std::string& suffix) {
  const std::string name = NameOf(suffix);
  Call({ip_, "netns", "add", name});
  names_.push_back(name);
  Call({ip_, "-n", name, "link", "set", "lo", "up"});
}

void NetworkTestbed::AddBridge(const std::string& name) {
  Call({ip_, "-n", NameOf(kSwitch), "link", "add", name, "type", "bridge"});
  Call({ip_, "-n", NameOf(kSwitch), "link", "set", name, "up"});
}

void NetworkTestbed::AddUplink(const std::string& bridge, const std::string& above,
                               int64_t bits_per_second) {
  const std::string name = NameOf(kSwitch);
  const std::string up = "up-" + bridge;
  const std::string down = "dn-" + bridge;
  Call({ip_, "-n", name, "link", "add", up, "type", "veth", "peer", "name", down});
  Call({ip_, "-n", name, "link", "set", up, "master", bridge, "up"});
  Call({ip_, "-n", name, "link", "set", down, "master", above, "up"});
  Shape(name, up, bits_per_second);
  Shape(name, down, bits_per_second);
}

void NetworkTestbed::AddMachine(int machine, const std::string& bridge, int64_t bits_per_second) {
  const std::string own = address(machine);
  const std::string port = "port" + std::to_string(machine);
  AddNamespace(std::to_string(machine));
  const std::string name = names_.back();
  const std::string gate = NameOf(kSwitch);
  Call({ip_, "-n", gate, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns",
        name});
  Call({ip_, "-n", gate, "link", "set", port, "master", bridge, "up"});
  Call({ip_, "-n", name, "address", "add", own + "/" + std::to_string(kSubnetBits), "dev", "eth0"});
  Call({ip_, "-n", name, "link", "set", "eth0", "up"});
  // By routes, not by sysctl: a namespace's default must be one of those that the machine allows to
  // everybody, which cubic need not be.
  Call({ip_, "-n", name, "route", "change", kSubnet, "dev", "eth0", "proto", "kernel", "scope",
        "link", "src", own, "congctl", kCongestionControl});
  Call({ip_, "-n", name, "route", "change", "table", "local", "local", own, "dev", "eth0", "proto",
        "kernel", "scope", "host", "src", own, "congctl", kCongestionControl});
  if (bits_per_second == 0) return;
  ShapeOwn(machine, bits_per_second);
  Shape(gate, port, bits_per_second);
}

void NetworkTestbed::ShapeOwn(int machine, int64_t bits_per_second) {
  const std::string burst = std::to_string(kBurstBytes);
  // What nobody else wants each may have; what several want goes by turns of `quantum`.
  const std::string borrows = " rate 8bit ceil " + std::to_string(bits_per_second) + "bit cburst " +
                              burst + " quantum " + burst + "\n";
  const std::string limit = std::to_string(BytesIn(queue_, bits_per_second) + kBurstBytes) + "\n";
  std::string classes = "qdisc add dev eth0 root handle 1: htb default " + Hex(kOthersClass) +
                        "\nclass add dev eth0 parent 1: classid 1:" + Hex(kLinkClass) +
                        " htb rate " + std::to_string(bits_per_second) + "bit burst " + burst +
                        " cburst " + burst + " quantum " + burst + "\n";
  const auto add_class = [&](const std::string& id) {
    classes += "class add dev eth0 parent 1:" + Hex(kLinkClass) + " classid 1:" + id + " htb";
    classes += borrows;
    classes += "qdisc add dev eth0 parent 1:" + id + " bfifo limit " + limit;
  };
  add_class(Hex(kOthersClass));
  for (int peer = 0; peer < machines_; ++peer) {
    if (peer == machine) continue;
    const std::string id = Hex(kFirstPeerClass + peer);
    add_class(id);
    classes += "filter add dev eth0 parent 1: protocol ip prio 1 u32 match ip dst " +
               address(peer) + "/32 flowid 1:" + id + "\n";
  }
  const TemporaryFile file;
  if (!(std::ofstream(file.path()) << classes).flush()) {
    throw Error(ExitCode::kFailure, "can't write " + file.path());
  }
  Call({tc_, "-n", NameOf(std::to_string(machine)), "-batch", file.path()});
}

void NetworkTestbed::Shape(const std::string& name, const std::string& device,
                           int64_t bits_per_second) {
  Call({tc_, "-n", name, "qdisc", "add", "dev", device, "root", "tbf", "rate",
        std::to_string(bits_per_second) + "bit", "burst", std::to_string(kBurstBytes), "latency",
        std::to_string(queue_ / std::chrono::microseconds(1)) + "us"});
}

}  // namespace poseidon
