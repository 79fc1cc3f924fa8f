// Which rank each node of a job gets, once all of them are there.
//
// Plans and predictions take worker i and server i to share a machine (cluster.network.colocated),
// so nodes that do not ask for a certain rank are paired by the host that they name.
#pragma once

#include <string>
#include <vector>

namespace poseidon {

// A node of one role.
struct RankWish {
  std::string host;
  int wanted = -1;  // -1: any
};

struct AssignedRanks {
  std::vector<int> workers;  // by the nodes' places in what was given
  std::vector<int> servers;
};

// As many workers and servers as the job has, each in the order of arrival; ranks that are wanted
// are below these numbers and differ. Wishes come true. Of the other nodes, as many workers as can
// be get the rank of a server on their host; else earlier nodes get lower ranks.
//
//   AssignRanks({{"b"}, {"a"}}, {{"a"}, {"b"}})  ->  workers {0, 1}, servers {1, 0}
AssignedRanks AssignRanks(const std::vector<RankWish>& workers,
                          const std::vector<RankWish>& servers);

}  // namespace poseidon
