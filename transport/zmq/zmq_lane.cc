#include "transport/zmq/zmq_lane.h"

#include <glog/logging.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <exception>
#include <utility>

#include "core/error.h"
#include "core/steady_now.h"
#include "proto/wire.pb.h"
#include "transport/zmq/zmq_frame.h"
#include "transport/zmq/zmq_socket.h"

namespace poseidon {
namespace {

using std::chrono::milliseconds;

// Messages received before timers and ended connections get their turn. Windows and the inbox do
// not wait for that, they are looked at before each message.
constexpr int kMessagesPerTurn = 64;

// How often a lane that stops looks whether the kernel has taken everything.
constexpr milliseconds kFinishInterval(1);

// Signals are for the program's own threads: a handler must never run on a lane.
void BlockSignals() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

// That this thread has used.
Duration ProcessorTime() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

// What makes a message shorter. A plan has an entry for each KV pair.
const char* HowToShorten(MessageKind kind) {
  return kind == MessageKind::kPlan ? "use larger KV pairs, of which there are fewer"
                                    : "use smaller KV pairs";
}

}  // namespace

ZmqLane::ZmqLane(ZmqNode& node, int lane, int port)
    : node_(node),
      lane_(lane),
      inbox_(*node.inboxes.at(lane)),
      events_(*node.events.at(lane)),
      waker_(*inbox_.waker()),
      receiver_(MakeReceiver(node.context, node.options, lane)),
      receiver_fd_(receiver_.get(zmq::sockopt::fd)),
      connections_(node.context, receiver_, node.counters),
      port_(Bind(receiver_, node.options, port)) {}

void ZmqLane::Start() {
  thread_ = std::thread([this] { Run(); });
}

void ZmqLane::Join() {
  if (thread_.joinable()) thread_.join();
}

void ZmqLane::Run() {
  BlockSignals();
  pthread_setname_np(pthread_self(), ("lane " + std::to_string(lane_)).c_str());
  while (!waker_.stopped()) Turn();
  Finish();
  actor_.reset();
}

void ZmqLane::Turn() {
  Service();
  const bool rests = drained_ && work_.empty();
  const Readable readable = Sleep(rests ? UntilNextDue() : milliseconds(0));
  if (readable.connections) connections_.Collect();
  if (readable.connections || readable.receiver) drained_ = false;
  if (!drained_) drained_ = Receive();
  if (drained_) connections_.Judge();
  if (readable.watched) TellOfLosses();
  FireTimers();
  CarryOnWork();
  RetryUnfinished();
}

void ZmqLane::Finish() {
  const Time deadline = SteadyNow() + node_.options.linger;
  Service();
  while (!idle() && SteadyNow() < deadline) {
    std::this_thread::sleep_for(kFinishInterval);
    Service();
    RetryUnfinished();
  }
}

bool ZmqLane::idle() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const auto& entry) { return entry.second->idle(); });
}

ZmqLane::Readable ZmqLane::Sleep(milliseconds limit) {
  // Not zmq_poll: it asks every socket for its state before and after, in several system calls. A
  // socket's descriptor is readable when something has come since a receive that found nothing.
  const bool asleep = limit.count() != 0 && waker_.FallAsleep();
  polled_.assign(
      {{receiver_fd_, POLLIN, 0}, {connections_.fd(), POLLIN, 0}, {waker_.fd(), POLLIN, 0}});
  const auto own = static_cast<std::ptrdiff_t>(polled_.size());
  for (const auto& [to, peer] : watched_) {
    if (const auto fd = peer->loss_fd()) polled_.push_back({*fd, POLLIN, 0});
  }
  const int ready =
      poll(polled_.data(), polled_.size(), asleep ? static_cast<int>(limit.count()) : 0);
  PCHECK(ready >= 0 || errno == EINTR);
  if (asleep) waker_.GetUp();
  if (ready <= 0) return {};
  if (polled_[2].revents != 0) waker_.Clear();
  const bool watched = std::any_of(polled_.begin() + own, polled_.end(),
                                   [](const pollfd& item) { return item.revents != 0; });
  return {polled_[0].revents != 0, polled_[1].revents != 0, watched};
}

milliseconds ZmqLane::UntilNextDue() const {
  std::optional<Time> next = timers_.next();
  if (!unfinished_.empty()) {
    const Time retry = retried_ + kReplaceAfter;
    next = next ? std::min(*next, retry) : retry;
  }
  if (!next) return milliseconds(-1);
  // Rounded up, as a timer never fires early; at most a day, as poll() counts in an int.
  const auto wait = std::chrono::ceil<milliseconds>(*next - SteadyNow());
  return std::clamp<milliseconds>(wait, milliseconds(0), std::chrono::hours(24));
}

void ZmqLane::Service() {
  if (!waker_.Take()) return;
  for (ZmqInbox::Item& item : inbox_.TakeAll()) {
    Guarded([&] { Handle(item); });
  }
  Guarded([this] { PumpUnfinished(); });
}

void ZmqLane::Handle(ZmqInbox::Item& item) {
  if (auto* envelope = std::get_if<Envelope>(&item)) {
    HandleEnvelope(std::move(*envelope));
  } else if (auto* route = std::get_if<Outbox::Route>(&item)) {
    SetRoute(*route);
  } else {
    while (!work_.empty()) CarryOnWork();
    actor_ = std::move(std::get<std::unique_ptr<Actor>>(item));
    timers_.Clear();
    CallActor([this](Actor& actor) { actor.OnStart(outbox_); });
  }
}

void ZmqLane::HandleEnvelope(Envelope envelope) {
  if (envelope.to.node.role != Role::kThisNode) {
    // The application's, for another node.
    Send(std::move(envelope));
  } else if (actor_) {
    CallActor([&](Actor& actor) { actor.OnMessage(envelope, outbox_); });
  } else {
    ++node_.counters.unroutable;
  }
}

void ZmqLane::SetRoute(const Outbox::Route& route) {
  routes_[route.to] = route;
  const auto peer = peers_.find(route.to);
  if (peer == peers_.end()) return;
  try {
    peer->second->MoveTo(route.endpoint);
  } catch (const ProtocolError& error) {
    ReportBadEndpoint(route.to, error);
  }
}

void ZmqLane::TellOfLosses() {
  for (size_t i = 0; i < watched_.size(); ++i) {  // which the actor may add to
    if (!watched_[i].second->TakeLoss() || !actor_) continue;
    Envelope lost;
    lost.kind = MessageKind::kConnectionLost;
    lost.from = watched_[i].first;
    lost.to = self();
    CallActor([&](Actor& actor) { actor.OnMessage(lost, outbox_); });
  }
}

bool ZmqLane::Receive() {
  for (int i = 0; i < kMessagesPerTurn; ++i) {
    Message message;
    if (!ReceiveMessage(message)) return true;
    // What came before this message in time comes before it here.
    Service();
    HandleMessage(message);
  }
  return false;
}

bool ZmqLane::ReceiveMessage(Message& message) {
  if (!receiver_.recv(message.routing_id, zmq::recv_flags::dontwait)) return false;
  // ZeroMQ delivers whole messages: the rest is there.
  zmq::message_t surplus;
  zmq::message_t* const places[] = {&message.header, &message.body};
  bool more = message.routing_id.more();
  while (more) {
    zmq::message_t& place = message.frames < 2 ? *places[message.frames] : surplus;
    CHECK(receiver_.recv(place, zmq::recv_flags::dontwait));
    more = place.more();
    ++message.frames;
  }
  return true;
}

void ZmqLane::HandleMessage(Message& message) {
  if (message.frames < 1 || message.frames > 2) {
    Drop(message, std::to_string(message.frames) + " frames instead of a header and a body");
    return;
  }
  DecodedHeader decoded =
      DecodeHeader({message.header.data<std::byte>(), message.header.size()}, message.body.size());
  if (!decoded.fault.empty()) {
    Drop(message, decoded.fault);
    return;
  }
  connections_.Spoke(message.header);
  Envelope& envelope = decoded.envelope;
  if (!actor_) {
    // A worker measures its links as soon as it knows the others, which may not be as far; it asks
    // again. Nodes go on beating for a scheduler that has not written down yet that it takes their
    // job over.
    if (envelope.kind == MessageKind::kProbe || envelope.kind == MessageKind::kHeartbeat) return;
    Drop(message, KindName(envelope.kind) + " from " + envelope.from.ToString() +
                      ", which this lane has no use for");
    return;
  }
  ++node_.counters.frames_received;
  node_.counters.bytes_received += static_cast<int64_t>(message.body.size());
  envelope.to = self();
  if (message.body.size() > 0) {
    auto owner = std::make_shared<zmq::message_t>(std::move(message.body));
    const std::span<const std::byte> bytes(owner->data<std::byte>(), owner->size());
    envelope.body = Payload::View(bytes, std::move(owner));
  }
  CallActor([&](Actor& actor) {
    events_.Add(FrameEvent(NodeEvent::Type::kArrived, outbox_.now, envelope, envelope.from,
                           decoded.number));
    actor.OnMessage(envelope, outbox_);
  });
}

void ZmqLane::Drop(Message& message, const std::string& fault) {
  ++node_.counters.malformed_frames;
  zmq::message_t& frame = message.frames > 0 ? message.header : message.routing_id;
  if (!connections_.Complained(frame)) return;
  LOG(WARNING) << self().ToString() << " (port " << port_ << ") drops a frame from "
               << PeerHost(frame) << ": " << fault << ". More from there will not be logged.";
}

void ZmqLane::FireTimers() {
  if (!timers_.next()) return;
  const Time now = SteadyNow();
  while (const std::optional<TimerId> timer = timers_.TakeDue(now)) {
    CallActor([&](Actor& actor) { actor.OnTimer(*timer, outbox_); });
  }
}

void ZmqLane::CarryOnWork() {
  if (work_.empty()) return;
  CallActor([this](Actor&) {
    if (const auto done = work_.RunSlice()) done(outbox_);
  });
}

template <typename Call>
void ZmqLane::CallActor(Call call) {
  outbox_.Clear();
  outbox_.now = SteadyNow();
  const bool timed = node_.options.times_actors && lane_ >= kFirstDataLane;
  const Duration worked = timed ? ProcessorTime() : Duration();
  const bool fine = Guarded([&] {
    call(*actor_);
    CarryOut();
  });
  if (timed) {
    const auto taken = std::chrono::nanoseconds(SteadyNow() - outbox_.now);
    node_.counters.busy_nanoseconds += taken.count();
    node_.counters.lane_holds.Add(taken);
    node_.counters.lane_work.Add(ProcessorTime() - worked);
  }
  if (fine) return;
  actor_.reset();
  timers_.Clear();
  work_.Clear();
}

template <typename Call>
bool ZmqLane::Guarded(Call call) {
  try {
    call();
    return true;
  } catch (const Error& error) {
    ReportFailure(error.exit_code(), error.what());
  } catch (const std::exception& error) {
    ReportFailure(ExitCode::kFailure, error.what());
  }
  return false;
}

void ZmqLane::ReportFailure(ExitCode exit_code, const std::string& reason) {
  wire::End end;
  end.set_exit_code(static_cast<int>(exit_code));
  end.set_reason(reason);
  Envelope envelope = MakeEnvelope(MessageKind::kFailed, Here(kApplicationLane), end);
  envelope.from = self();
  Send(std::move(envelope));
}

void ZmqLane::CarryOut() {
  if (outbox_.identity) node_.SetIdentity(*outbox_.identity);
  if (outbox_.window_bytes) *node_.window_bytes = *outbox_.window_bytes;
  if (outbox_.drop_queued) {
    for (auto& [to, peer] : peers_) peer->DropQueued();
  }
  for (const Outbox::Route& route : outbox_.routes) {
    SetRoute(route);
    node_.AddRoute(route, lane_);
  }
  for (Outbox::Attachment& attachment : outbox_.attachments) {
    node_.Attach(attachment.lane, std::move(attachment.actor));
  }
  for (Envelope& envelope : outbox_.messages) {
    envelope.from = self();
    Send(std::move(envelope));
  }
  PumpUnfinished();
  for (const Outbox::Timer& timer : outbox_.timers) {
    if (timer.delay) {
      timers_.Set(timer.id, outbox_.now + *timer.delay);
    } else {
      timers_.Cancel(timer.id);
    }
  }
  if (!outbox_.work.empty()) work_.Add(std::move(outbox_.work));
}

void ZmqLane::Send(Envelope envelope) {
  if (envelope.to.node.role == Role::kThisNode) {
    node_.Deliver(std::move(envelope));
    return;
  }
  CHECK(!envelope.body.phantom()) << "a phantom payload has no bytes to send";
  if (static_cast<int64_t>(envelope.body.size()) > node_.options.max_frame_bytes) {
    throw ProtocolError(KindName(envelope.kind) + " for " + envelope.to.ToString() + " has " +
                        std::to_string(envelope.body.size()) + " bytes, frames are limited to " +
                        std::to_string(node_.options.max_frame_bytes) + ": " +
                        HowToShorten(envelope.kind));
  }
  ZmqPeer* const peer = FindPeer(envelope.to);
  if (peer == nullptr) {
    ++node_.counters.unroutable;
    return;
  }
  if (peer->empty()) unfinished_.push_back(peer);
  peer->Enqueue(std::move(envelope));
}

ZmqPeer* ZmqLane::FindPeer(const Address& to) {
  const auto peer = peers_.find(to);
  if (peer != peers_.end()) return peer->second.get();
  const auto route = routes_.find(to);
  if (route == routes_.end()) return nullptr;
  try {
    auto made = std::make_unique<ZmqPeer>(node_.context, node_.options, node_.window_bytes, lane_,
                                          route->second, inbox_.waker(), node_.counters, events_);
    ZmqPeer* const added = peers_.emplace(to, std::move(made)).first->second.get();
    if (route->second.tells_loss) watched_.emplace_back(to, added);
    return added;
  } catch (const ProtocolError& error) {
    ReportBadEndpoint(to, error);
    routes_.erase(route);
    return nullptr;
  }
}

void ZmqLane::ReportBadEndpoint(const Address& to, const ProtocolError& error) {
  LOG(WARNING) << self().ToString() << " can't reach " << to.ToString() << ": " << error.what();
}

void ZmqLane::PumpUnfinished() {
  std::erase_if(unfinished_, [](ZmqPeer* peer) { return peer->Pump(); });
}

void ZmqLane::RetryUnfinished() {
  if (unfinished_.empty()) return;
  const Time now = SteadyNow();
  if (now - retried_ < kReplaceAfter) return;
  retried_ = now;
  Guarded([this] {
    for (ZmqPeer* const peer : unfinished_) peer->TakeBack();
    PumpUnfinished();
  });
}

}  // namespace poseidon
