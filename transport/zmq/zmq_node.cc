#include "transport/zmq/zmq_node.h"

#include <glog/logging.h>

#include <bit>
#include <exception>
#include <utility>

#include "transport/zmq/zmq_socket.h"

namespace poseidon {

ZmqNode::ZmqNode(NodeId self, const ZmqOptions& node_options)
    : options(node_options),
      window_bytes(std::make_shared<std::atomic<int64_t>>(node_options.window_bytes)),
      context(MakeContext(node_options)),
      activities(static_cast<size_t>(node_options.kept_events)) {
  SetIdentity(self);
  for (int lane = 0; lane < kFirstDataLane + options.data_lanes; ++lane) {
    inboxes.push_back(std::make_unique<ZmqInbox>());
    events.push_back(std::make_unique<EventRing>(static_cast<size_t>(options.kept_events)));
  }
}

void ZmqNode::Deliver(Envelope envelope) {
  const int lane = envelope.to.lane;
  if (lane == kApplicationLane) {
    Show(envelope);
    mailbox.Put(std::move(envelope));
    return;
  }
  CHECK(lane >= 0 && lane < static_cast<int>(inboxes.size())) << "no lane " << lane;
  inboxes[lane]->Put(std::move(envelope));
}

void ZmqNode::Show(const Envelope& envelope) const {
  if (!observer) return;
  try {
    observer(envelope);
  } catch (const std::exception& error) {
    // The envelope may tell why the job ends.
    LOG(WARNING) << "can't act at once on a message (" << KindName(envelope.kind) << " from "
                 << envelope.from.ToString()
                 << "), which the program itself gets all the same: " << error.what();
  }
}

void ZmqNode::AddRoute(const Outbox::Route& route, int origin) {
  {
    std::lock_guard lock(mutex_);
    endpoints_[route.to] = route.endpoint;
  }
  for (int lane = 0; lane < static_cast<int>(inboxes.size()); ++lane) {
    if (lane != origin) inboxes[lane]->Put(route);
  }
}

void ZmqNode::Attach(int lane, std::unique_ptr<Actor> actor) {
  CHECK(lane >= 0 && lane < static_cast<int>(inboxes.size())) << "no lane " << lane;
  inboxes[lane]->Put(std::move(actor));
}

std::map<Address, std::string> ZmqNode::endpoints() const {
  std::lock_guard lock(mutex_);
  return endpoints_;
}

NodeId ZmqNode::identity() const { return std::bit_cast<NodeId>(identity_.load()); }

void ZmqNode::SetIdentity(NodeId self) { identity_.store(std::bit_cast<uint64_t>(self)); }

}  // namespace poseidon
