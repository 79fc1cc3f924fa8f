// Backups: where the servers update in a job that recovers, which second server keeps each chunk,
// so that the loss of one server, or of its machine, leaves the chunk's values and optimizer state
// at another.
//
//   PlaceBackups({"node1", "node1", "node2"}, plan);   // servers 0 and 1 share a machine
#pragma once

#include <string>
#include <vector>

#include "proto/model.pb.h"

namespace poseidon {

// Gives each chunk that a server updates a backup: one of the other servers, of those on another
// host than the owner's if there are any. They take turns, the largest chunks of each owner first,
// so that as owners have about the same load backups have, too. Under ADAM there is one for all
// chunks of a bucket. `hosts`: of the plan's servers, by place; empty: each has a machine of its
// own. Without effect where there is only one server.
void PlaceBackups(const std::vector<std::string>& hosts, Plan& plan);

// Whether some chunk's owner and backup are on one host.
bool BackupsShareHosts(const std::vector<std::string>& hosts, const Plan& plan);

}  // namespace poseidon
