#include "transport/sim/sim_egress.h"

#include <algorithm>

namespace poseidon {
namespace {

// Of a nanosecond: what rounding of the virtual time makes of a whole number.
constexpr double kRounding = 1e-3;

// As std::ceil, without its call.
int64_t RoundUp(double number) {
  const auto whole = static_cast<int64_t>(number);
  return whole + (static_cast<double>(whole) < number ? 1 : 0);
}

}  // namespace

void SimEgress::Push(uint32_t transfer, int64_t priority, uint64_t connection, int64_t bytes,
                     int64_t now) {
  const uint32_t index = IndexOf(send_buffer_ == 0 ? 0 : connection);
  Connection& state = connections_[index];
  if (!state.leaving) {  // then nothing waits, either
    Advance(now);
    return Begin(index, transfer, bytes, sent_);
  }
  state.queue.Push({priority, order_++, bytes, transfer});
  if (send_buffer_ > 0) HandOver(state);
}

int64_t SimEgress::NextLeft() const {
  if (leaving_.empty()) return kNever;
  const double bytes = std::max(0.0, leaving_.top().tag - sent_) * busy_;
  return since_ + RoundUp(bytes * nanoseconds_per_byte_ - kRounding);
}

std::optional<uint32_t> SimEgress::PopLeft(int64_t now) {
  if (leaving_.empty() || NextLeft() > now) return std::nullopt;
  Advance(now);
  const Leaving left = leaving_.Pop();
  --busy_;
  connections_[left.connection].leaving = false;
  // Its next one goes on where it ended, not at the nanosecond after it; unless the link was its
  // alone, which rounds up every time.
  if (busy_ == 0) Advance(now);
  BeginNext(left.connection, busy_ == 0 ? sent_ : left.tag);
  return left.transfer;
}

uint32_t SimEgress::IndexOf(uint64_t connection) {
  const auto [found, is_new] =
      index_.try_emplace(connection, static_cast<uint32_t>(connections_.size()));
  if (is_new) connections_.emplace_back();
  return found->second;
}

// As much of the connection's queue as its buffer has room for, most urgent first.
void SimEgress::HandOver(Connection& connection) {
  while (!connection.queue.empty()) {
    const int64_t bytes = connection.queue.top().bytes;
    if (connection.held > 0 && connection.held + bytes > send_buffer_) return;
    const Queued queued = connection.queue.Pop();
    connection.held += bytes;
    connection.buffer.Push({order_++, queued.transfer, bytes});
  }
}

void SimEgress::BeginNext(uint32_t index, double tag) {
  Connection& connection = connections_[index];
  if (connection.buffer.empty()) HandOver(connection);
  if (connection.buffer.empty()) return;
  const Buffered first = connection.buffer.Pop();
  connection.held -= first.bytes;
  if (send_buffer_ > 0) HandOver(connection);
  Begin(index, first.transfer, first.bytes, tag);
}

void SimEgress::Begin(uint32_t index, uint32_t transfer, int64_t bytes, double tag) {
  ++busy_;
  connections_[index].leaving = true;
  leaving_.Push({tag + static_cast<double>(bytes), order_++, transfer, index});
  begun_.push_back(transfer);
}

void SimEgress::Advance(int64_t now) {
  if (busy_ == 0) {
    sent_ = 0;  // so that it stays small
  } else {
    sent_ += static_cast<double>(now - since_) / nanoseconds_per_byte_ / busy_;
  }
  since_ = now;
}

}  // namespace poseidon
