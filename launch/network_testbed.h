// NetworkTestbed: a network of this machine's own, for real programs with real sockets. A machine
// is a network namespace (`ip netns`), joined by a link that lets its rate through in each
// direction to a bridge in one more namespace. The bridge's ports have one queue each, as a
// switch's (tc's token bucket filter). A machine's own link serves those that it sends to in turns
// (tc's hierarchical token bucket), as fq_codel, many Linux systems' default, does connections:
// with one queue there, too, the share of a receiver is what TCP's windows happen to be, and
// servers that answer all workers fall behind some of them by a fifth of an iteration. What the
// links add in latency is what this machine's kernel takes, tens of microseconds: no more can be
// emulated without netem.
//
// Nothing outside these namespaces is touched. They go when the object does, with every process in
// them; those of a program that was killed go when the next one makes a testbed. Not thread-safe;
// one at a time in a program.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "core/time.h"

namespace poseidon {

// Consecutive machines, or groups of the level before, whose traffic to the others shares an
// uplink.
struct TestbedTier {
  int members = 1;
  int64_t bits_per_second = 0;  // each direction
};

struct TestbedOptions {
  // By machine: bits a second of its link, each direction.
  std::vector<int64_t> links;
  std::vector<TestbedTier> tiers;  // innermost first
  // How much may wait before a link, as the time to pass it; what comes beyond that is dropped.
  // The default is about a switch port's memory, 1.25 MB at 1 Gb/s.
  Duration queue = std::chrono::milliseconds(10);
};

// Throws Error that says what a testbed needs and this program lacks: root, or the programs `ip`
// and `tc`.
void CheckCanMakeTestbed();

class NetworkTestbed {
 public:
  // Throws what CheckCanMakeTestbed throws, and Error that says what failed.
  explicit NetworkTestbed(const TestbedOptions& options);
  ~NetworkTestbed();
  NetworkTestbed(const NetworkTestbed&) = delete;
  NetworkTestbed& operator=(const NetworkTestbed&) = delete;

  // A machine's address; from 0. One more than there are links is a machine that is joined to
  // all the others by a link without limit, above all tiers.
  std::string address(int machine) const;
  // What goes before a command that is to run there. It runs as the program's own child.
  std::vector<std::string> Enter(int machine) const;

 private:
  void Build(const TestbedOptions& options);
  void AddNamespace(const std::string& suffix);
  void AddBridge(const std::string& name);
  // Joins `bridge` to the one above.
  void AddUplink(const std::string& bridge, const std::string& above, int64_t bits_per_second);
  // Makes the machine; a rate of 0 is no limit.
  void AddMachine(int machine, const std::string& bridge, int64_t bits_per_second);
  void ShapeOwn(int machine, int64_t bits_per_second);
  void Shape(const std::string& name, const std::string& device, int64_t bits_per_second);
  void Remove() noexcept;
  std::string NameOf(const std::string& suffix) const { return prefix_ + suffix; }

  std::string ip_;
  std::string tc_;
  std::string prefix_;
  Duration queue_;
  int machines_;                    // with links, without the one that has none
  std::vector<std::string> names_;  // of the namespaces that there are
};

}  // namespace poseidon
