#include "transport/membership/scheduler_address.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "core/net/host_address.h"

namespace poseidon {
struct SchedulerAddress::Found {
  std::atomic<bool> done = false;
  std::vector<std::string> addresses;  // the thread's until it is done
};

SchedulerAddress::SchedulerAddress(const Cluster& cluster)
    : SchedulerAddress(cluster, ResolveHost(cluster.scheduler_host(), kSchedulerHostField),
                       AddressesOf) {}

SchedulerAddress::SchedulerAddress(const Cluster& cluster, std::string address, Resolver resolver)
    : resolver_(std::move(resolver)),
      name_(cluster.scheduler_host()),
      port_(cluster.scheduler_port()),
      address_(std::move(address)) {}

std::string SchedulerAddress::Endpoint(int lane) const {
  return "tcp://" + HostAndPort{address_, port_ + lane}.ToString();
}

void SchedulerAddress::LookUp() {
  if (found_ != nullptr || IsIpAddress(name_)) return;
  const auto found = std::make_shared<Found>();
  try {
    std::thread([found, resolver = resolver_, name = name_] {
      try {
        found->addresses = resolver(name);
      } catch (const std::exception&) {
        // As where nobody knows the name: it is looked up again.
      }
      found->done = true;
    }).detach();
  } catch (const std::system_error&) {
    return;  // the system allows no more threads; the next call tries again
  }
  found_ = found;
}

bool SchedulerAddress::is_looking_up() const { return found_ != nullptr && !found_->done; }

bool SchedulerAddress::TakeChange() {
  if (found_ == nullptr || !found_->done) return false;
  const std::vector<std::string> addresses = std::move(std::exchange(found_, nullptr)->addresses);
  if (addresses.empty() || std::ranges::count(addresses, address_) > 0) return false;
  address_ = addresses.front();
  return true;
}

}  // namespace poseidon
