// EventFile: what a node has kept of its last time, as NAME.events.json in the job's output
// directory: by `poseidon explain` read to tell why a job has ended, by `poseidon timeline` to draw
// who sent what to whom.
//
//   WriteFileAtomically(directory + "/" + EventFileName(node), EventFileText(file));
//   const EventFile read = ParseEventFile(text, path);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/time.h"
#include "transport/address.h"
#include "transport/events/node_event.h"
#include "transport/events/tcp_connections.h"

namespace poseidon {

// A value.
struct EventFile {
  NodeId node;
  int64_t process = 0;    // its id
  std::string host;       // at which other nodes reach it
  std::string clock;      // core/process/machine_clock.h; times are its steady clock's
  Duration wall_clock{};  // minus the steady clock
  Time written{};
  // Why it was written; 0 where the job ended well and has `trace: true`.
  int exit_code = 0;
  std::string reason;
  std::vector<std::string> layers;   // of the model, by index; empty: unknown
  std::vector<std::string> buckets;  // of the plan

  // Oldest first; kApplicationLane has the activities of the program.
  struct Lane {
    int lane = 0;
    std::vector<NodeEvent> events;
  };
  std::vector<Lane> lanes;

  // To the lane of another node that it has sent to.
  struct Connection {
    Address to;
    // kNone: there is no connection, as to a process that has ended.
    enum class State { kEstablished, kConnecting, kClosing, kNone } state = State::kNone;
    int64_t unconfirmed_bytes = 0;
    int retransmissions = 0;
    bool window_closed = false;
  };
  std::vector<Connection> connections;

  int64_t available_memory = 0;     // bytes, of its machine
  int64_t resident_memory = 0;      // its own
  int64_t out_of_memory_kills = 0;  // by its machine, since the node began
};

// "worker-1.events.json"; nothing but that says of which node the file is, if it can't be read.
std::string EventFileName(const NodeId& node);

// Ends with a line's end, and has no other.
std::string EventFileText(const EventFile& file);

// Throws Error, kDataError, which names `path`, if the text is no such file.
EventFile ParseEventFile(const std::string& text, const std::string& path);

// The connection among `all` that leads to an endpoint, "tcp://host:port".
EventFile::Connection FindConnection(const Address& to, const std::string& endpoint,
                                     const std::vector<TcpConnection>& all);

}  // namespace poseidon
