// PortPair: two TCP ports of this machine, one behind the other, that no other job is given while
// this lives.
//
//   const PortPair ports;
//   job.mutable_cluster()->set_scheduler_port(ports.first());
//
// They are bound, though nobody listens here. So whoever looks for a free port passes over them,
// also while the program that they are for is away and about to be started again; and that program
// can listen there, as it sets SO_REUSEADDR, which ZeroMQ does.
//
// Not thread-safe.
#pragma once

#include <array>

namespace poseidon {

// Whether somebody listens at one of these two, the first and the next one. Where it can't be found
// out, as at ports that this user may not have, whoever is to listen there tells why it can't.
bool IsPairTaken(int first);

class PortPair {
 public:
  // Drawn at random. Throws Error if there are none.
  PortPair();
  ~PortPair();
  PortPair(const PortPair&) = delete;
  PortPair& operator=(const PortPair&) = delete;

  int first() const { return first_; }

 private:
  // Whether both are bound now.
  bool Bind(int first);
  void Close();

  int first_ = 0;
  std::array<int, 2> sockets_ = {-1, -1};
};

}  // namespace poseidon
