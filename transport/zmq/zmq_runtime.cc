#include "transport/zmq/zmq_runtime.h"

#include <glog/logging.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/net/host_address.h"
#include "core/process/memory.h"
#include "core/process/resource_limits.h"
#include "core/steady_now.h"
#include "transport/zmq/zmq_admission.h"
#include "transport/zmq/zmq_lane.h"
#include "transport/zmq/zmq_node.h"
#include "transport/zmq/zmq_socket.h"

namespace poseidon {

class ZmqRuntime::Implementation {
 public:
  Implementation(NodeId self, const ZmqOptions& options)
      : node(self, options), admission(node.context, node.options, node.counters) {
    for (int lane = 0; lane < static_cast<int>(node.inboxes.size()); ++lane) {
      int port = 0;
      if (lane == kControlLane) port = options.control_port;
      if (lane == kHeartbeatLane) port = options.heartbeat_port;
      lanes.push_back(std::make_unique<ZmqLane>(node, lane, port));
      endpoints.push_back("tcp://" +
                          HostAndPort{options.public_host, lanes.back()->port()}.ToString());
    }
  }

  ZmqNode node;
  ZmqAdmission admission;  // after all sockets that it answers for are closed
  std::vector<std::unique_ptr<ZmqLane>> lanes;
  std::vector<std::string> endpoints;
};

ZmqRuntime::ZmqRuntime(NodeId self, const ZmqOptions& options) {
  // ZeroMQ aborts where it can't start one.
  const std::optional<std::string> shortage =
      FindThreadShortage(ThreadsOf(options), "a node of this job");
  if (shortage) throw Error(ExitCode::kFailure, *shortage);
  // ZeroMQ receives each frame into a block of its own.
  KeepFreedMemory();
  try {
    implementation_ = std::make_unique<Implementation>(self, options);
  } catch (const zmq::error_t& error) {
    const char* const advice =
        error.num() == EMFILE ? "; raise the limit of open files (ulimit -n)" : "";
    throw Error(ExitCode::kFailure, std::string("can't open sockets: ") + error.what() + advice);
  }
}

ZmqRuntime::~ZmqRuntime() { Stop(); }

std::string ZmqRuntime::endpoint(int lane) const { return implementation_->endpoints.at(lane); }

std::vector<std::string> ZmqRuntime::endpoints() const { return implementation_->endpoints; }

void ZmqRuntime::Attach(int lane, std::unique_ptr<Actor> actor) {
  implementation_->node.Attach(lane, std::move(actor));
}

void ZmqRuntime::SetRoute(const Address& to, const std::string& endpoint) {
  implementation_->node.AddRoute({to, endpoint}, kApplicationLane);
}

void ZmqRuntime::Start() {
  for (const auto& lane : implementation_->lanes) lane->Start();
}

void ZmqRuntime::Stop() {
  ZmqNode& node = implementation_->node;
  for (const auto& inbox : node.inboxes) inbox->waker()->Stop();
  for (const auto& lane : implementation_->lanes) lane->Join();
  implementation_->lanes.clear();
  for (const auto& inbox : node.inboxes) inbox->Close();
  implementation_->admission.Stop();
  // Waits until ZeroMQ has released all frames.
  node.context.close();
}

void ZmqRuntime::Post(Envelope envelope) {
  ZmqNode& node = implementation_->node;
  envelope.from = {node.identity(), kApplicationLane};
  if (envelope.to.node.role == Role::kThisNode) {
    node.Deliver(std::move(envelope));
    return;
  }
  // By the lane of the same index, as an actor's would go.
  const int last = static_cast<int>(node.inboxes.size()) - 1;
  const int lane = std::clamp(envelope.to.lane, kControlLane, last);
  node.inboxes[lane]->Put(std::move(envelope));
}

Mailbox& ZmqRuntime::mailbox() { return implementation_->node.mailbox; }

void ZmqRuntime::Observe(std::function<void(const Envelope&)> observer) {
  implementation_->node.observer = std::move(observer);
}

void ZmqRuntime::Note(Activity activity, int64_t iteration, int layer) {
  NodeEvent event;
  event.time = SteadyNow();
  event.type = NodeEvent::Type::kBegan;
  event.kind = static_cast<int32_t>(activity);
  event.iteration = iteration;
  event.bucket = static_cast<uint32_t>(layer);
  implementation_->node.activities.Add(event);
}

EventFile ZmqRuntime::Events() const {
  const ZmqNode& node = implementation_->node;
  EventFile file;
  file.node = node.identity();
  file.written = SteadyNow();
  file.lanes.push_back({kApplicationLane, node.activities.Read()});
  for (int lane = 0; lane < static_cast<int>(node.events.size()); ++lane) {
    file.lanes.push_back({lane, node.events[lane]->Read()});
  }
  const std::vector<TcpConnection> connections = OwnTcpConnections();
  for (const auto& [to, endpoint] : node.endpoints()) {
    const bool has_sent = std::ranges::any_of(file.lanes, [&to = to](const EventFile::Lane& lane) {
      return std::ranges::any_of(lane.events, [&to](const NodeEvent& event) {
        return event.type == NodeEvent::Type::kSent && event.peer() == to;
      });
    });
    if (has_sent) file.connections.push_back(FindConnection(to, endpoint, connections));
  }
  return file;
}

const TransportCounters& ZmqRuntime::counters() const { return implementation_->node.counters; }

}  // namespace poseidon
