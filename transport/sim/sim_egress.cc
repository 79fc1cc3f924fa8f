#include "transport/sim/sim_egress.h"

#include <algorithm>

namespace poseidon {

void SimEgress::Push(uint32_t transfer, int priority, uint64_t connection, int64_t bytes) {
  const Queued queued{priority, transfer, order_++};
  if (send_buffer_ == 0) return queue_.Push(queued);
  const auto [found, is_new] =
      index_.try_emplace(connection, static_cast<uint32_t>(connections_.size()));
  if (is_new) connections_.emplace_back();
  connections_[found->second].queue.Push({queued, bytes});
  HandOver(found->second);
}

uint32_t SimEgress::Pop() {
  if (send_buffer_ == 0) return queue_.Pop().transfer;
  const HandedOver next = handed_over_.Pop();
  tag_ = next.tag;
  connections_[next.connection].held -= next.bytes;
  HandOver(next.connection);
  return next.transfer;
}

// As much of the connection's queue as its buffer has room for, most urgent first.
void SimEgress::HandOver(uint32_t index) {
  Connection& connection = connections_[index];
  while (!connection.queue.empty()) {
    const int64_t bytes = connection.queue.top().bytes;
    if (connection.held > 0 && connection.held + bytes > send_buffer_) return;
    const QueuedBytes queued = connection.queue.Pop();
    connection.held += bytes;
    connection.tag = std::max(connection.tag, tag_) + bytes;
    handed_over_.Push({connection.tag, queued.order, queued.transfer, index, bytes});
  }
}

}  // namespace poseidon
