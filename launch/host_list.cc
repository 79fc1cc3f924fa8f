#include "launch/host_list.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <sstream>
#include <string_view>

#include "core/error.h"
#include "core/files/regular_file.h"
#include "core/net/host_address.h"
#include "core/net/ip_networks.h"
#include "core/text/split.h"
#include "core/text/utf8.h"

namespace poseidon {
namespace {

// More processes than any machine is given.
constexpr int kMostSlots = 4096;

struct Word {
  std::string text;
  Location where;
};

// Up to the comment.
std::vector<Word> WordsOf(std::string line, const std::string& path, int number) {
  constexpr const char* kBlanks = " \t\r\v\f";
  line = line.substr(0, line.find('#'));
  std::vector<Word> words;
  for (size_t begin = 0; (begin = line.find_first_not_of(kBlanks, begin)) != std::string::npos;) {
    const size_t end = std::min(line.find_first_of(kBlanks, begin), line.size());
    words.push_back({line.substr(begin, end - begin), {path, number, static_cast<int>(begin) + 1}});
    begin = end;
  }
  return words;
}

bool AllOf(const std::string& word, std::string_view others) {
  return std::all_of(word.begin(), word.end(), [others](unsigned char letter) {
    return std::isalnum(letter) != 0 || others.find(static_cast<char>(letter)) != others.npos;
  });
}

// A name or an address. Nothing that a remote shell might take for one of its options, or a shell
// for more than a word, as behind the '%' of an IPv6 address anything may stand.
bool IsHost(const std::string& word) {
  if (word.empty() || word.front() == '-') return false;
  return AllOf(word, ".-_") || (AllOf(word, ".-_:%[]") && IsIpAddress(word));
}

struct Login {
  std::string user;  // with the '@' behind it; empty: none is named
  std::string host;  // an IPv6 address without brackets, as ssh takes it
};

// nullopt for a word that is neither a host nor "user@host".
std::optional<Login> ParseLogin(const std::string& word) {
  const size_t at = word.rfind('@');
  const size_t begin = at == std::string::npos ? 0 : at + 1;
  const std::string user = word.substr(0, begin);
  const std::string host = word.substr(begin);
  if (!IsHost(host) || word.front() == '-' || word.front() == '@' || !AllOf(user, ".-_@")) {
    return std::nullopt;
  }
  return Login{user, WithoutBrackets(host)};
}

// The value of "key=value"; nothing for another word.
std::optional<std::string> ValueOf(const Word& word, const std::string& key) {
  if (!word.text.starts_with(key + "=")) return std::nullopt;
  return word.text.substr(key.size() + 1);
}

// Else the last one would count without a word.
void RefuseRepeated(const std::vector<Word>& words, const std::string& key) {
  const auto has_key = [&key](const Word& word) { return ValueOf(word, key).has_value(); };
  const auto first = std::find_if(words.begin(), words.end(), has_key);
  if (first == words.end()) return;
  const auto second = std::find_if(std::next(first), words.end(), has_key);
  if (second == words.end()) return;
  throw ConfigError(second->where, key + "= is there twice, as \"" + first->text + "\" and \"" +
                                       second->text + "\"; write it once");
}

int ParseSlots(const Word& word, const std::string& value) {
  int slots = 0;
  const char* const end = value.data() + value.size();
  const auto [rest, failure] = std::from_chars(value.data(), end, slots);
  if (failure == std::errc() && rest == end && slots >= 1 && slots <= kMostSlots) return slots;
  throw ConfigError(word.where, "slots is \"" + value + "\"; it must be between 1 and " +
                                    std::to_string(kMostSlots));
}

void ParseRoles(const Word& word, const std::string& value, Host& host) {
  host.takes_workers = false;
  host.takes_servers = false;
  for (const std::string& role : SplitAtCommas(value)) {
    if (role == "worker") {
      host.takes_workers = true;
    } else if (role == "server") {
      host.takes_servers = true;
    } else {
      throw ConfigError(word.where, "\"" + role +
                                        "\" is no role; expected roles=worker, roles=server or "
                                        "roles=worker,server");
    }
  }
  if (!host.takes_workers && !host.takes_servers) {
    throw ConfigError(word.where, "no role stands behind roles=; expected worker, server or both");
  }
}

Host ParseHost(const std::vector<Word>& words) {
  const Word& name = words.front();
  const std::optional<Login> login = ParseLogin(name.text);
  if (!login) {
    throw ConfigError(name.where, "\"" + name.text + "\" is no host; expected HOST or USER@HOST");
  }
  Host host;
  host.name = login->user + login->host;
  host.address = login->host;
  for (const char* const key : {"slots", "roles"}) RefuseRepeated(words, key);
  for (size_t i = 1; i < words.size(); ++i) {
    const Word& word = words[i];
    if (const auto slots = ValueOf(word, "slots")) {
      host.slots = ParseSlots(word, *slots);
    } else if (const auto roles = ValueOf(word, "roles")) {
      ParseRoles(word, *roles, host);
    } else if (i > 1 || word.text.find('=') != std::string::npos) {
      throw ConfigError(word.where, "\"" + word.text +
                                        "\" is too much; a line has a host and, if need be, its "
                                        "address, slots=N and roles=worker,server");
    } else if (!IsHost(word.text)) {
      throw ConfigError(word.where, "\"" + word.text +
                                        "\" is no address; expected a name or an address at which "
                                        "the other hosts reach " +
                                        host.name);
    } else {
      host.address = WithoutBrackets(word.text);
    }
  }
  return host;
}

// A machine whose address means another one to each of the others.
void RefuseLoopbackAmongOthers(const std::vector<Host>& hosts, const std::string& path) {
  const auto loopback = [](const Host& host) { return IsLoopbackName(host.address); };
  const auto one = std::find_if(hosts.begin(), hosts.end(), loopback);
  if (one == hosts.end() || std::all_of(hosts.begin(), hosts.end(), loopback)) return;
  throw ConfigError(path + ": the others do not reach " + one->name + " at " + one->address +
                    "; write the address at which they do behind its name");
}

// The first `count` of those with the role.
std::vector<Host> Take(const std::vector<Host>& slots, bool Host::*role, const char* name,
                       int count, const std::string& path) {
  std::vector<Host> taken;
  for (const Host& slot : slots) {
    if (slot.*role) taken.push_back(slot);
  }
  const int there = static_cast<int>(taken.size());
  if (there < count) {
    throw ConfigError(
        path + ": there is room for " + std::to_string(there) + " " + name +
        "(s), and the job has " + std::to_string(count) +
        "; name more hosts, or give them more slots (slots=N)" +
        (there == 0 ? "" : ", or take --" + std::string(name) + "s=" + std::to_string(there)));
  }
  taken.resize(static_cast<size_t>(count));
  return taken;
}

}  // namespace

std::vector<Host> ReadHosts(const std::string& path) {
  const std::string text = ReadRegularFile(path, ExitCode::kConfigError);
  std::istringstream file{std::string(WithoutByteOrderMark(text))};
  std::vector<Host> hosts;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const std::vector<Word> words = WordsOf(line, path, number);
    if (!words.empty()) hosts.push_back(ParseHost(words));
  }
  if (hosts.empty()) throw ConfigError(path + ": there is no host; expected one a line");
  RefuseLoopbackAmongOthers(hosts, path);
  return hosts;
}

std::vector<Host> BySlot(const std::vector<Host>& hosts) {
  std::vector<Host> slots;
  for (const Host& host : hosts) {
    Host slot = host;
    slot.slots = 1;
    slots.insert(slots.end(), static_cast<size_t>(host.slots), slot);
  }
  return slots;
}

HostRanks AssignRanks(const std::vector<Host>& hosts, int workers, int servers, bool colocated,
                      const std::string& path) {
  std::vector<Host> slots = BySlot(hosts);
  HostRanks ranks;
  ranks.workers = Take(slots, &Host::takes_workers, "worker", workers, path);
  if (!colocated) {
    // The workers have the first of those that they may have.
    int left = workers;
    std::erase_if(slots, [&left](const Host& slot) { return slot.takes_workers && left-- > 0; });
  }
  ranks.servers = Take(slots, &Host::takes_servers, "server", servers, path);
  return ranks;
}

int CoresForEachWorker(const std::vector<Host>& workers, const std::map<std::string, int>& cores) {
  std::map<std::string, int> workers_of;
  for (const Host& host : workers) ++workers_of[host.name];
  std::optional<int> fewest;
  for (const auto& [name, count] : workers_of) {
    const auto found = cores.find(name);
    const int here = found == cores.end() ? 0 : found->second / count;
    fewest = std::min(fewest.value_or(here), here);
  }
  return std::max(1, fewest.value_or(1));
}

}  // namespace poseidon
