// The machines that a user has, for experiments that run on them: a text file with a host a line.
//
//   # what the remote shell calls it [the address at which the other hosts reach it]
//   node0
//   alice@node1  10.0.0.2
//
// Blank lines and what follows a '#' do not count. A host may be named more than once, and is then
// as many machines.
#pragma once

#include <string>
#include <vector>

namespace poseidon {

struct Host {
  std::string name;     // for the remote shell: "node0", "alice@node0"
  std::string address;  // a name or an IPv4 address; the name's, without a user, if none is given
};

// At least one. Throws ConfigError, which names file and line.
std::vector<Host> ReadHosts(const std::string& path);

}  // namespace poseidon
