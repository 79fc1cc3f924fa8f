#include "launch/doctor/host_facts.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <sstream>

#include "launch/host_query.h"
#include "launch/job_cluster.h"
#include "launch/remote_shell.h"

namespace poseidon {
namespace {

constexpr const char* kPrograms[] = {"poseidon_scheduler", "poseidon_server"};

// Shell functions: a line of a fact; a file's fingerprint; the nearest directory that is there; a
// host's address and the device that leads there; whether whole packets reach the host that was
// looked up last. Names whose name server is silent or slow take 15 s, all together,
// and the last one the time that is left once more; those that are left then are said not to have
// been asked for, and so is who has not been found in less time than the first has. What each host
// may take anyway does not count.
constexpr const char* kFunctions = R"sh(
PATH=$PATH:/usr/sbin:/sbin
say() { printf '%s' "$1"; shift; for value; do printf '\t%s' "$value"; done; printf '\n'; }
sum() { [ -r "$1" ] && sha256sum < "$1" 2>/dev/null | cut -c1-16; }
sum_of_all() { [ -r "$1" ] && cat "$@" 2>/dev/null | sha256sum 2>/dev/null | cut -c1-16; }
there() { at=$1; while [ ! -d "$at" ]; do at=$(dirname "$at"); done; printf %s "$at"; }
room() {
  at=$(there "$1")
  # The number before the percentage: what is mounted may have blanks in its name.
  df -Pk "$at" | sed -nE '2s,.* ([0-9-]+) +([0-9]+%|-) +/.*,\1,p'
  [ -w "$at" ] && echo yes
}
try() {
  [ -x "$programs/$1" ] || return
  said=$("$programs/$1" --version 2>&1 >/dev/null) ||
    say broken "$1" "$(printf %s "$said" | tail -n 1)"
}
can_read() { [ -r "$1" ] && { [ ! -d "$1" ] || [ -r "$1/data.mdb" ] || [ -r "$1/CURRENT" ]; }; }
hundredths() { read -r uptime idle < "$root/proc/uptime"; echo "${uptime%.*}${uptime#*.}"; }
patience=1500  # hundredths of a second
longest=$((patience / 200 + 1))
look_up() {
  device=
  address=
  [ $patience -gt 0 ] || { say unasked "$1"; return; }
  limit=$((patience / 200 + 1))
  began=$(hundredths)
  found=$(timeout $limit getent ahosts "$1")
  code=$?
  spent=$(($(hundredths) - began))
  [ $spent -lt 5 ] || patience=$((patience - spent))
  # With more time it might be found.
  [ $code -ne 124 ] || [ $limit -eq $longest ] || { say unasked "$1"; return; }
  # The first one of IPv4, or else the first.
  address=$(printf '%s\n' "$found" | sed -n '/^[^ ]*:/!{s/ .*//;p;q;}')
  [ -n "$address" ] || address=${found%% *}
  say resolved "$1" "$address"
  [ -n "$address" ] &&
    device=$(ip -o route get "$address" 2>/dev/null | sed -n 's/.* dev \([^ ]*\).*/\1/p') &&
    say route "$1" "$device"
}
try_whole_packets() {
  [ -n "$device" ] && command -v ping >/dev/null || return 0
  case "$address" in *:*) headers=48 ;; *) headers=28 ;; esac  # of IP and ICMP
  size=$(($(cat "/sys/class/net/$device/mtu") - headers))
  ping -c 1 -W 1 -s 56 "$address" >/dev/null 2>&1 || return 0
  ping -c 1 -W 1 -M do -s $size "$address" >/dev/null 2>&1 && whole=yes || whole=no
  say whole_packets $whole
}
)sh";

// What does not depend on the questions.
constexpr const char* kMachine = R"sh(
say clock "$(date +%s.%N)"
say cores "$(usable_cores)"
say memory "$(usable_memory)"
say files_limit "$(sed -n 's/^Max open files *[^ ]* *\([^ ]*\).*/\1/p' /proc/self/limits)"
say processes_limit "$(sed -n 's/^Max processes *\([^ ]*\).*/\1/p' /proc/self/limits)"
say congestion_control "$(cat /proc/sys/net/ipv4/tcp_congestion_control 2>/dev/null)"
ip -o addr show 2>/dev/null | while read -r number name inet address rest; do
  link=$(ip -o link show dev "$name" 2>/dev/null)
  say interface "$name" "${address%%/*}" "$(cat "/sys/class/net/$name/mtu" 2>/dev/null)" \
    "$(printf %s "$link" | sed -n 's/.* qdisc \([^ ]*\).*/\1/p')"
done
nvidia-smi --query-gpu=driver_version,name --format=csv,noheader 2>/dev/null |
  while IFS=, read -r driver name; do say gpu "${name# }" "$driver"; done
)sh";

// A word for each address: a remote shell takes a script of at most 128 KiB, as a single argument.
std::string AddressScript(const HostQuestions& questions) {
  std::string script = "for name in";
  for (const std::string& address : questions.addresses) script += " " + ShellQuoted(address);
  script += "; do\n  look_up \"$name\"\n";
  if (!questions.next.empty()) {
    script += "  [ \"$name\" != " + ShellQuoted(questions.next) + " ] || try_whole_packets\n";
  }
  return script + "done\n";
}

std::vector<std::string> Fields(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream stream(line);
  for (std::string field; std::getline(stream, field, '\t');) fields.push_back(field);
  return fields;
}

std::optional<int64_t> Number(const std::string& text) {
  if (text == "unlimited") return -1;
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, number);
  if (failure != std::errc() || rest != end || number < 0) return std::nullopt;
  return number;
}

std::optional<double> Real(const std::string& text) {
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0') return std::nullopt;
  return number;
}

std::optional<std::string> Text(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

constexpr int64_t kKibibyte = 1024;

using Values = std::vector<std::string>;  // of a line, with empty ones up to five
using Reader = void (*)(const Values&, HostFacts&);

// By key.
const std::map<std::string, Reader>& Readers() {
  static const std::map<std::string, Reader> readers = {
      {"clock", [](const Values& v, HostFacts& facts) { facts.clock = Real(v[0]); }},
      {"version", [](const Values& v, HostFacts& facts) { facts.version = Text(v[0]); }},
      {"program", [](const Values& v, HostFacts& facts) { facts.programs[v[0]] = v[1]; }},
      {"broken", [](const Values& v, HostFacts& facts) { facts.broken[v[0]] = v[1]; }},
      {"file", [](const Values& v, HostFacts& facts) { facts.files[v[0]] = v[1]; }},
      {"resolved", [](const Values& v, HostFacts& facts) { facts.resolved[v[0]] = v[1]; }},
      {"unasked", [](const Values& v, HostFacts& facts) { facts.unasked.push_back(v[0]); }},
      {"route", [](const Values& v, HostFacts& facts) { facts.routes[v[0]] = v[1]; }},
      {"interface",
       [](const Values& v, HostFacts& facts) {
         facts.interfaces.push_back({v[0], v[1], static_cast<int>(Number(v[2]).value_or(0)), v[3]});
       }},
      {"whole_packets",
       [](const Values& v, HostFacts& facts) { facts.whole_packets = v[0] == "yes"; }},
      {"cores",
       [](const Values& v, HostFacts& facts) {
         if (const auto cores = Number(v[0])) facts.cores = static_cast<int>(*cores);
       }},
      {"memory",
       [](const Values& v, HostFacts& facts) {
         if (const auto kibibytes = Number(v[0])) facts.memory = *kibibytes * kKibibyte;
       }},
      {"files_limit", [](const Values& v, HostFacts& facts) { facts.open_files = Number(v[0]); }},
      {"processes_limit",
       [](const Values& v, HostFacts& facts) { facts.processes = Number(v[0]); }},
      {"room",
       [](const Values& v, HostFacts& facts) {
         facts.rooms[v[0]] = {Number(v[1]).value_or(0) * kKibibyte, v[2] == "yes"};
       }},
      {"data", [](const Values& v, HostFacts& facts) { facts.data[v[0]] = v[1] == "yes"; }},
      {"congestion_control",
       [](const Values& v, HostFacts& facts) { facts.congestion_control = Text(v[0]); }},
      {"gpu",
       [](const Values& v, HostFacts& facts) {
         facts.gpus.push_back({v[0], v[1]});
       }},
      {"working_directory",
       [](const Values& v, HostFacts& facts) { facts.has_working_directory = v[0] == "yes"; }},
  };
  return readers;
}

}  // namespace

std::string FactsScript(const HostQuestions& questions) {
  std::string script = kFunctions;
  script += kAllowanceFunctions;
  script += kMachine;
  script += "case $(pwd) in " + ShellQuoted(questions.working_directory) + " | " +
            ShellQuoted(std::filesystem::current_path().string()) +
            ") say working_directory yes ;; esac\n";
  script += "programs=" + ShellQuoted(questions.programs) + "\n";
  script += "say version \"$(\"$programs/poseidon\" --version 2>/dev/null)\"\n";
  for (const char* const program : kPrograms) {
    script += std::string("say program ") + program + " \"$(sum \"$programs/" + program + "\")\"\n";
    script += std::string("try ") + program + "\n";
  }
  // With what it becomes for engine TORCH, beside it or where it is installed.
  script +=
      "say program poseidon_worker \"$(sum_of_all \"$programs/poseidon_worker\" "
      "\"$programs/poseidon_torch_worker\" "
      "\"$programs/../lib/poseidon/poseidon_torch_worker\")\"\n";
  // What makes a program a worker, likewise.
  const std::string library(kPreloadedLibrary);
  script += "library=\"$programs/" + library + "\"\n";
  script += "[ -r \"$library\" ] || library=\"$programs/../lib/poseidon/" + library + "\"\n";
  script += "say program " + library + " \"$(sum \"$library\")\"\n";
  for (const std::string& file : questions.files) {
    script += "say file " + ShellQuoted(file) + " \"$(sum " + ShellQuoted(file) + ")\"\n";
  }
  for (const std::string& path : questions.data) {
    const std::string quoted = ShellQuoted(path);
    script +=
        "can_read " + quoted + " && say data " + quoted + " yes || say data " + quoted + " no\n";
  }
  for (const std::string& directory : questions.directories) {
    const std::string quoted = ShellQuoted(directory);
    script += "say room " + quoted + " $(room " + quoted + ")\n";
  }
  if (!questions.addresses.empty()) script += AddressScript(questions);
  return script;
}

HostFacts ParseFacts(const std::string& answer) {
  constexpr size_t kMostValues = 5;
  HostFacts facts;
  std::istringstream lines(answer);
  for (std::string line; std::getline(lines, line);) {
    Values fields = Fields(line);
    if (fields.empty()) continue;
    const auto reader = Readers().find(fields.front());
    if (reader == Readers().end()) continue;
    Values values(fields.begin() + 1, fields.end());
    values.resize(kMostValues);
    reader->second(values, facts);
  }
  return facts;
}

}  // namespace poseidon
