#include "launch/host_list.h"

#include <algorithm>
#include <sstream>

#include "core/error.h"
#include "core/files/regular_file.h"

namespace poseidon {
namespace {

// A name, an address, or either after "user@". Nothing that a remote shell might take for one of
// its options, or a shell for more than a word.
bool IsName(const std::string& word, bool with_user) {
  const auto allowed = [&](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '.' || letter == '-' || letter == '_' ||
           (with_user && letter == '@');
  };
  return word.front() != '-' && word.front() != '@' && word.back() != '@' &&
         std::all_of(word.begin(), word.end(), allowed);
}

// That of the machine that asks for it, whichever that is.
bool IsLoopback(const std::string& address) {
  return address == "localhost" || address.starts_with("127.");
}

// A machine whose address means another one to each of the others.
void RefuseLoopbackAmongOthers(const std::vector<Host>& hosts, const std::string& path) {
  const auto loopback = [](const Host& host) { return IsLoopback(host.address); };
  const auto one = std::find_if(hosts.begin(), hosts.end(), loopback);
  if (one == hosts.end() || std::all_of(hosts.begin(), hosts.end(), loopback)) return;
  throw ConfigError(path + ": the others do not reach " + one->name + " at " + one->address +
                    "; write the address at which they do behind its name");
}

}  // namespace

std::vector<Host> ReadHosts(const std::string& path) {
  std::istringstream file(ReadRegularFile(path, ExitCode::kConfigError));
  std::vector<Host> hosts;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::istringstream words(line.substr(0, line.find('#')));
    Host host;
    std::string more;
    if (!(words >> host.name)) continue;
    const Location where{path, number};
    if (!IsName(host.name, true)) {
      throw ConfigError(where, "\"" + host.name + "\" is no host; expected HOST or USER@HOST");
    }
    if (!(words >> host.address)) host.address = host.name.substr(host.name.find('@') + 1);
    if (!IsName(host.address, false)) {
      throw ConfigError(where, "\"" + host.address +
                                   "\" is no address; expected a name or an IPv4 "
                                   "address at which the other hosts reach " +
                                   host.name);
    }
    if (words >> more) {
      throw ConfigError(
          where, "\"" + more + "\" is too much; a line has a host and, if need be, its address");
    }
    hosts.push_back(std::move(host));
  }
  if (hosts.empty()) throw ConfigError(path + ": there is no host; expected one a line");
  RefuseLoopbackAmongOthers(hosts, path);
  return hosts;
}

}  // namespace poseidon
