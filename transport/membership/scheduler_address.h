// SchedulerAddress: where the scheduler's name leads, looked up again while the scheduler is
// silent. A scheduler that takes the place of one that died may have another address: in a
// container that was started again, or on another machine, to which its name has moved.
//
// Thread safety: one thread at a time.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace poseidon {

// What messages call its name.
inline constexpr const char* kSchedulerHostField = "cluster.scheduler_host";

class SchedulerAddress {
 public:
  // AddressesOf (core/net/host_address.h), or what stands for it; called from any thread.
  using Resolver = std::function<std::vector<std::string>(const std::string& host)>;

  // Looks cluster.scheduler_host up, which may wait for a name server. Throws ConfigError if it
  // can't be resolved.
  explicit SchedulerAddress(const Cluster& cluster);
  // Begins with `address`.
  SchedulerAddress(const Cluster& cluster, std::string address, Resolver resolver);

  // "tcp://host:port" of one of the scheduler's lanes, with the host's address: ZeroMQ would look a
  // name up whenever it connects anew, in the thread that carries all connections.
  std::string Endpoint(int lane) const;

  // Has the name looked up once more, unless it is an address or that is under way. Never waits: a
  // thread of its own does that, and may end after this is gone, as behind a cable that is cut the
  // resolver has deadlines of its own.
  void LookUp();
  bool is_looking_up() const;
  // Whether the last LookUp has found another address, which Endpoint() has from then on. Where a
  // name has several, the one in use stays as long as it is among them.
  bool TakeChange();

 private:
  struct Found;  // what the thread has found

  Resolver resolver_;
  std::string name_;
  int port_;
  std::string address_;
  std::shared_ptr<Found> found_;  // null: nobody looks, and what was found has been taken
};

}  // namespace poseidon
