#include "transport/zmq/zmq_peer.h"

#include <glog/logging.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/steady_now.h"
#include "core/time.h"
#include "transport/zmq/zmq_frame.h"
#include "transport/zmq/zmq_socket.h"

namespace poseidon {
namespace {

// What the smallest message takes of the window: about what ZeroMQ allocates for one. It keeps a
// flood of empty messages from passing the window unseen.
constexpr int64_t kSmallestCharge = 512;

// And not something that the system lacks.
bool IsNoEndpoint(const zmq::error_t& error) {
  return error.num() == EINVAL || error.num() == EPROTONOSUPPORT || error.num() == ENODEV;
}

Payload Copy(const Payload& payload) {
  auto copy = std::make_shared_for_overwrite<std::byte[]>(payload.size());
  std::memcpy(copy.get(), payload.bytes().data(), payload.size());
  const std::span<const std::byte> view(copy.get(), payload.size());
  return Payload::View(view, std::move(copy));
}

}  // namespace

ZmqPeer::ZmqPeer(zmq::context_t& context, const ZmqOptions& options,
                 std::shared_ptr<const std::atomic<int64_t>> window_bytes, int lane,
                 const Outbox::Route& route, std::shared_ptr<ZmqWaker> waker,
                 TransportCounters& counters, EventRing& events)
    : context_(context),
      options_(options),
      window_bytes_(std::move(window_bytes)),
      lane_(lane),
      endpoint_(route.endpoint),
      waker_(std::move(waker)),
      counters_(counters),
      events_(events),
      lost_after_(route.lost_after),
      tells_loss_(route.lost_after && route.tells_loss) {
  Connect();
}

void ZmqPeer::Connect() {
  // A window of its own: what an earlier socket holds comes back to the earlier window.
  window_ = std::make_shared<ZmqWindow>(window_bytes_, waker_);
  connected_ = SteadyNow();
  try {
    connecting_.reset();
    watch_.reset();
    connection_made_.reset();
    socket_ = MakeSender(context_, options_, lane_, lost_after_);
    if (tells_loss_) {
      Watch();
    } else if (lane_ >= kFirstDataLane) {
      connecting_.emplace(context_, socket_, ZMQ_EVENT_CONNECTED);
    }
    // In the background, and again whenever the connection breaks.
    socket_.connect(endpoint_);
    fault_.clear();
  } catch (const zmq::error_t& error) {
    // Rather none than one to where the peer was.
    connecting_.reset();
    watch_.reset();
    socket_.close();
    const std::string fault = "cannot connect to '" + endpoint_ + "': " + error.what();
    if (IsNoEndpoint(error)) throw ProtocolError(fault);
    // What the system lacks now, file descriptors say, it may have soon.
    Complain(fault);
  }
}

void ZmqPeer::Watch() {
  watch_.emplace(context_, socket_, ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED);
  TakeLoss();  // the descriptor is readable only for those who have looked
}

bool ZmqPeer::TakeLoss() {
  bool lost = false;
  while (const auto event = watch_ ? watch_->Next() : std::nullopt) {
    const Time now = SteadyNow();
    if (event->kind == ZMQ_EVENT_HANDSHAKE_SUCCEEDED) {
      connection_made_ = now;
      continue;
    }
    // What ends sooner was ended by the other side.
    lost |= connection_made_ && now - *connection_made_ >= *lost_after_;
    connection_made_.reset();
  }
  return lost;
}

std::optional<int> ZmqPeer::loss_fd() const {
  return watch_ ? std::optional(watch_->fd()) : std::nullopt;
}

void ZmqPeer::MoveTo(const std::string& endpoint) {
  if (endpoint == endpoint_) return;
  endpoint_ = endpoint;
  Connect();
}

bool ZmqPeer::Later(const Queued& a, const Queued& b) {
  return std::pair(a.envelope.priority, a.number) > std::pair(b.envelope.priority, b.number);
}

void ZmqPeer::Enqueue(Envelope envelope) {
  CountQueued(envelope, 1);
  queue_.push_back({std::move(envelope), count_++});
  std::push_heap(queue_.begin(), queue_.end(), Later);
}

void ZmqPeer::DropQueued() {
  for (const Queued& queued : queue_) CountQueued(queued.envelope, -1);
  queue_.clear();
}

void ZmqPeer::CountQueued(const Envelope& envelope, int change) {
  counters_.queued_frames += change;
  counters_.queued_bytes += change * static_cast<int64_t>(envelope.body.size());
}

void ZmqPeer::TuneConnection() {
  if (!connecting_) return;
  const std::optional<ZmqMonitor::Event> event = connecting_->Next();
  if (!event) return;
  LimitUnsent(event->value, options_);
  connecting_.reset();
}

bool ZmqPeer::Pump() {
  if (!socket_ && !ReplaceSocket()) return queue_.empty();
  TuneConnection();
  while (!queue_.empty()) {
    const Envelope& first = queue_.front().envelope;
    const int64_t charge = std::max(static_cast<int64_t>(first.body.size()), kSmallestCharge);
    if (!window_->Admit(charge)) return false;
    if (!Send(first, charge)) {
      if (!ReplaceSocket()) return false;
      continue;
    }
    CountQueued(first, -1);
    std::pop_heap(queue_.begin(), queue_.end(), Later);
    queue_.pop_back();
  }
  return true;
}

void ZmqPeer::TakeBack() {
  if (socket_) (void)socket_.get(zmq::sockopt::events);
}

bool ZmqPeer::Send(const Envelope& envelope, int64_t charge) {
  const Payload& body = envelope.body;
  std::string header = EncodeHeader(envelope, sent_ + 1);
  // Before it can arrive.
  const Time begin = SteadyNow();
  // The last frame of the message is the one that gives the charge back.
  if (body.size() == 0) {
    zmq::message_t frame =
        MakeFrame(Payload::FromString(std::move(header)), charge, window_, envelope.departure);
    if (!socket_.send(frame, zmq::send_flags::dontwait)) return false;
  } else {
    zmq::message_t frame = MakeFrame(body.size() < kZeroCopyBytes ? Copy(body) : body, charge,
                                     window_, envelope.departure);
    if (!socket_.send(zmq::buffer(header), zmq::send_flags::dontwait | zmq::send_flags::sndmore)) {
      return false;
    }
    // What is true of a message's first frame is true of the rest.
    socket_.send(frame, zmq::send_flags::dontwait);
  }
  ++sent_;
  events_.Add(FrameEvent(NodeEvent::Type::kSent, begin, envelope, envelope.to, sent_));
  ++counters_.frames_sent;
  counters_.bytes_sent += static_cast<int64_t>(body.size());
  return true;
}

bool ZmqPeer::ReplaceSocket() {
  if (SteadyNow() - connected_ < kReplaceAfter) return false;
  try {
    Connect();
  } catch (const ProtocolError& error) {
    Complain(error.what());  // the endpoint is another node's word
  }
  return static_cast<bool>(socket_);
}

void ZmqPeer::Complain(const std::string& fault) {
  LOG_IF(WARNING, fault_ != fault)
      << "lane " << lane_ << " " << fault << "; it is tried again every second";
  fault_ = fault;
}

}  // namespace poseidon
