#include "transport/sim/sim_runtime_implementation.h"

#include <glog/logging.h>

#include <algorithm>
#include <charconv>
#include <exception>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "proto/wire.pb.h"

namespace poseidon {
namespace {

// How much work a lane does before it looks at what has come.
constexpr Duration kWorkTurn = std::chrono::milliseconds(1);

// Takes a number off the front of `text`; false if there is none.
bool TakeInt(std::string_view* text, int* value) {
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *value);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return true;
}

// The lane that "sim://NODE/LANE" names; nowhere if it is malformed or there are fewer nodes.
SimLane ParseEndpoint(std::string_view endpoint, SimNode node_count) {
  if (!endpoint.starts_with(kSimScheme)) return {};
  endpoint.remove_prefix(kSimScheme.size());
  SimNode node = -1;
  int lane = 0;
  if (!TakeInt(&endpoint, &node) || !endpoint.starts_with('/')) return {};
  endpoint.remove_prefix(1);
  if (!TakeInt(&endpoint, &lane) || !endpoint.empty()) return {};
  if (node < 0 || node >= node_count || lane < SimLane::kFirst || lane > SimLane::kLast) return {};
  return SimLane(node, lane);
}

}  // namespace

SimNode SimRuntime::Implementation::AddNode(NodeId self, int machine) {
  CHECK(machine >= 0 && machine < network_.machine_count()) << "no simulated machine " << machine;
  const auto node = static_cast<SimNode>(nodes_.size());
  CHECK_LE(node, SimLane::kLastNode);
  nodes_.emplace_back();
  nodes_.back().self = self;
  network_.AddNode(machine);
  return node;
}

void SimRuntime::Implementation::Attach(SimNode node, int lane, std::unique_ptr<Actor> actor) {
  CHECK(lane >= SimLane::kFirst && lane <= SimLane::kLast) << "no lane " << lane;
  CHECK(network_.alive(node)) << "simulated node " << node << " was killed";
  FinishWork(SimLane(node, lane));
  std::vector<Lane>& lanes = NodeAt(node).lanes;
  const size_t index = static_cast<size_t>(lane - SimLane::kFirst);
  if (lanes.size() <= index) lanes.resize(index + 1);
  Retire(&lanes[index]);
  if (options_.wrap) actor = options_.wrap(node, lane, std::move(actor));
  lanes[index].actor = std::move(actor);
  lanes[index].started = false;
  events_.Push(now(), SimEventKind::kStart, SimLane(node, lane).packed());
}

void SimRuntime::Implementation::SetRoute(SimNode node, const Address& to,
                                          const std::string& endpoint) {
  NodeAt(node).routes.Set(to, Resolve(node, to, endpoint));
}

// Throws ConfigError if there is no such lane.
SimLane SimRuntime::Implementation::Resolve(SimNode node, const Address& to,
                                            const std::string& endpoint) const {
  const SimLane lane = ParseEndpoint(endpoint, static_cast<SimNode>(nodes_.size()));
  if (lane.nowhere()) {
    throw ConfigError("simulation: the route of node " + std::to_string(node) + " to " +
                      to.ToString() + " is '" + endpoint +
                      "'; it must be sim://NODE/LANE and name a node of the simulation");
  }
  return lane;
}

void SimRuntime::Implementation::ShareRoutes(
    SimNode node, std::shared_ptr<const std::vector<Outbox::Route>> routes) {
  if (routes != shared_source_) {
    auto resolved = std::make_shared<SimRoutes>();
    for (const Outbox::Route& route : *routes) {
      resolved->Set(route.to, Resolve(node, route.to, route.endpoint));
    }
    shared_source_ = std::move(routes);
    shared_routes_ = std::move(resolved);
  }
  NodeAt(node).shared_routes = shared_routes_;
}

SimLane SimRuntime::Implementation::FindRoute(SimNode node, const Address& to) {
  const Node& sender = NodeAt(node);
  const SimLane own = sender.routes.Find(to);
  if (!own.nowhere() || sender.shared_routes == nullptr) return own;
  const SimLane shared = sender.shared_routes->Find(to);
  // A job's routes name the node itself, too, which has no route to itself.
  return shared.nowhere() || shared.node() == node ? SimLane() : shared;
}

void SimRuntime::Implementation::Kill(SimNode node) {
  Node& killed = NodeAt(node);
  if (!network_.alive(node)) return;
  for (Lane& lane : killed.lanes) Retire(&lane);
  killed.routes = SimRoutes();
  killed.shared_routes.reset();
  network_.RemoveNode(node);
  if (!running_) retired_.clear();
}

Time SimRuntime::Implementation::Run(Time deadline) {
  CHECK(!running_) << "SimRuntime::Run called from within Run";
  struct Running {
    explicit Running(bool* flag) : flag_(flag) { *flag_ = true; }
    ~Running() { *flag_ = false; }
    bool* flag_;
  } running(&running_);
  halted_ = false;
  while (!halted_) {
    SkipTimersNotDue();
    if (events_.empty()) break;
    if (events_.next().time > deadline) {
      events_.AdvanceTo(deadline);
      break;
    }
    ++statistics_.events;
    Handle(events_.Pop());
    if (network_.has_dropped()) AwaitLosses();
    retired_.clear();
  }
  return now();
}

// Events of timers that were moved or canceled are no events: time must not go on for them.
void SimRuntime::Implementation::SkipTimersNotDue() {
  while (!events_.empty() && events_.next().kind == SimEventKind::kTimer &&
         !timers_.Due(events_.next())) {
    events_.Drop();
  }
}

void SimRuntime::Implementation::Handle(const SimEvent& event) {
  switch (event.kind) {
    case SimEventKind::kAction:
      actions_.Take(event.subject)();
      break;
    case SimEventKind::kStart:
      Start(SimLane::FromPacked(event.subject));
      break;
    case SimEventKind::kTimer: {
      const SimTimers::Expired expired = timers_.Take(event);
      Call(expired.lane, [&](Actor& actor, Outbox& outbox) { actor.OnTimer(expired.id, outbox); });
      break;
    }
    case SimEventKind::kEgressLeft:
    case SimEventKind::kReachesUplink:
    case SimEventKind::kReachesIngress:
    case SimEventKind::kLeavesIngress:
    case SimEventKind::kArrives:
      if (std::optional<SimTransfer> arrived = network_.Handle(event)) {
        Arrive(*std::move(arrived));
      }
      break;
    case SimEventKind::kHandled:
      Deliver(held_.Take(event.subject));
      break;
    case SimEventKind::kWorked:
      CarryOnWork(SimLane::FromPacked(event.subject));
      break;
  }
}

SimRuntime::Implementation::Lane* SimRuntime::Implementation::FindLane(SimLane lane) {
  std::vector<Lane>& lanes = NodeAt(lane.node()).lanes;
  const size_t index = static_cast<size_t>(lane.lane() - SimLane::kFirst);
  return index < lanes.size() && lanes[index].actor != nullptr ? &lanes[index] : nullptr;
}

void SimRuntime::Implementation::Start(SimLane lane) {
  Lane* found = FindLane(lane);
  if (found == nullptr || found->started) return;
  found->started = true;
  Call(lane, [](Actor& actor, Outbox& outbox) { actor.OnStart(outbox); });
}

void SimRuntime::Implementation::Arrive(SimTransfer transfer) {
  Lane* lane =
      options_.processing && network_.alive(transfer.to.node()) ? FindLane(transfer.to) : nullptr;
  if (lane == nullptr) return Deliver(std::move(transfer));
  const Duration duration = options_.processing(transfer.envelope);
  CHECK(duration >= Duration::zero()) << "processing takes a negative time";
  const bool waits = lane->busy_until >= now() || duration > Duration::zero();
  lane->busy_until = std::max(lane->busy_until, now()) + duration;
  if (!waits) return Deliver(std::move(transfer));
  const Time end = lane->busy_until;
  events_.Push(end, SimEventKind::kHandled, held_.Put(std::move(transfer)));
}

void SimRuntime::Implementation::Deliver(SimTransfer transfer) {
  const bool between_nodes = transfer.from != transfer.to.node();
  if (!network_.alive(transfer.to.node())) {
    if (between_nodes) ++statistics_.lost;
    return;
  }
  Start(transfer.to);
  if (FindLane(transfer.to) == nullptr) {
    ++statistics_.unroutable;
    return;
  }
  if (between_nodes) {
    if (transfer.watched) FindWatched(transfer.from, transfer.to)->Arrived();
    ++statistics_.envelopes;
    statistics_.body_bytes += static_cast<int64_t>(transfer.envelope.body.size());
    transfer.envelope.to = {NodeAt(transfer.to.node()).self, transfer.to.lane()};
  }
  Call(transfer.to,
       [&](Actor& actor, Outbox& outbox) { actor.OnMessage(transfer.envelope, outbox); });
}

template <typename Function>
void SimRuntime::Implementation::Call(SimLane lane, Outbox& outbox, const Function& function) {
  Actor& actor = *FindLane(lane)->actor;
  outbox.Clear();
  outbox.now = now();
  try {
    function(actor, outbox);
    // The actor, or what it called, may have killed its own node.
    if (network_.alive(lane.node())) CarryOut(lane, outbox);
  } catch (const Error& error) {
    Fail(lane, error.exit_code(), error.what());
  } catch (const std::exception& error) {
    Fail(lane, ExitCode::kFailure, error.what());
  }
}

void SimRuntime::Implementation::CarryOut(SimLane lane, Outbox& outbox) {
  const SimNode node = lane.node();
  if (outbox.identity) NodeAt(node).self = *outbox.identity;
  for (const Outbox::Route& route : outbox.routes) {
    SetRoute(node, route.to, route.endpoint);
    if (route.lost_after && route.tells_loss) Watch(lane, route);
  }
  if (outbox.shared_routes != nullptr) ShareRoutes(node, outbox.shared_routes);
  for (Outbox::Attachment& attachment : outbox.attachments) {
    Attach(node, attachment.lane, std::move(attachment.actor));
  }
  for (Envelope& envelope : outbox.messages) Send(lane, std::move(envelope));
  for (const Outbox::Timer& timer : outbox.timers) ChangeTimer(lane, timer);
  if (outbox.work.empty()) return;
  Lane* found = FindLane(lane);
  if (found->work == nullptr) found->work = std::make_unique<LaneWork>();
  found->work->queue.Add(std::move(outbox.work));
  if (!found->work->end) QueueWork(lane);
}

Duration SimRuntime::Implementation::TimeOf(const ArithmeticAmount& amount) const {
  return options_.arithmetic ? options_.arithmetic(amount) : Duration::zero();
}

void SimRuntime::Implementation::QueueWork(SimLane lane) {
  Lane& found = *FindLane(lane);
  LaneWork& work = *found.work;
  const Duration slice = TimeOf(work.queue.NextSlice());
  const Duration turn = std::max(slice, std::min(kWorkTurn, TimeOf(work.queue.Left())));
  CHECK(turn >= Duration::zero()) << "work takes a negative time";
  found.busy_until =
      std::max(found.busy_until, now()) + std::max(turn - work.time, Duration::zero());
  work.time = std::max(turn, work.time);
  work.end = found.busy_until;
  events_.Push(*work.end, SimEventKind::kWorked, lane.packed());
}

void SimRuntime::Implementation::CarryOnWork(SimLane lane) {
  // The actor whose work it was may be gone.
  const auto work_of = [&]() -> LaneWork* {
    Lane* found = network_.alive(lane.node()) ? FindLane(lane) : nullptr;
    return found != nullptr && found->work != nullptr && found->work->end == now()
               ? found->work.get()
               : nullptr;
  };
  LaneWork* work = work_of();
  if (work == nullptr) return;
  do {
    work->time -= TimeOf(work->queue.NextSlice());
    RunSlice(lane, outbox_);
    work = work_of();
    if (work == nullptr) return;
  } while (!work->queue.empty() && work->time >= TimeOf(work->queue.NextSlice()));
  work->end.reset();
  if (!work->queue.empty()) return QueueWork(lane);
  work->time = Duration::zero();
}

void SimRuntime::Implementation::RunSlice(SimLane lane, Outbox& outbox) {
  const auto done = FindLane(lane)->work->queue.RunSlice();
  if (!done) return;
  Call(lane, outbox, [&](Actor&, Outbox& given) { done(given); });
}

void SimRuntime::Implementation::FinishWork(SimLane lane) {
  Outbox outbox;  // the lane that attaches an actor here is still using the other one
  while (true) {
    Lane* found = FindLane(lane);
    if (found == nullptr || found->work == nullptr || found->work->queue.empty()) return;
    RunSlice(lane, outbox);
  }
}

void SimRuntime::Implementation::Send(SimLane from, Envelope envelope) {
  const Node& node = NodeAt(from.node());
  envelope.from = {node.self, from.lane()};
  SimLane to;
  if (envelope.to.node.role != Role::kThisNode) {
    to = FindRoute(from.node(), envelope.to);
  } else if (envelope.to.lane >= SimLane::kFirst && envelope.to.lane <= SimLane::kLast) {
    to = SimLane(from.node(), envelope.to.lane);
  }
  if (to.nowhere()) {
    ++statistics_.unroutable;
    return;
  }
  if (to.node() != from.node()) {
    CHECK(IsWireKind(envelope.kind))
        << envelope.from.ToString() << " sends " << KindName(envelope.kind) << " to another node";
    envelope.happened = Time{};
  }
  const bool watched = !node.watched.empty() && FindWatched(from.node(), to) != nullptr;
  network_.Send(std::move(envelope), from.node(), to, watched);
}

void SimRuntime::Implementation::Watch(SimLane lane, const Outbox::Route& route) {
  const SimNode node = lane.node();
  const SimLane to = NodeAt(node).routes.Find(route.to);
  SimConnection connection(lane.lane(), route.to, to, *route.lost_after);
  if (SimConnection* const before = FindWatched(node, to)) {
    *before = connection;
  } else {
    NodeAt(node).watched.push_back(connection);
  }
}

SimConnection* SimRuntime::Implementation::FindWatched(SimNode node, SimLane to) {
  for (SimConnection& connection : NodeAt(node).watched) {
    if (connection.to().packed() == to.packed()) return &connection;
  }
  return nullptr;
}

void SimRuntime::Implementation::AwaitLosses() {
  for (const auto& [node, to] : network_.TakeDropped()) {
    if (const auto when = FindWatched(node, to)->Dropped(now())) {
      At(*when, [this, from = node, target = to] { TellIfLost(from, target); });
    }
  }
}

void SimRuntime::Implementation::TellIfLost(SimNode node, SimLane to) {
  SimConnection& connection = *FindWatched(node, to);
  // The machine of a process that is gone closes its connections.
  if (!network_.alive(node) || !network_.alive(to.node()) || !connection.Lost(now())) return;
  const SimLane lane(node, connection.lane());
  if (FindLane(lane) == nullptr) return;
  Envelope lost;
  lost.kind = MessageKind::kConnectionLost;
  lost.from = connection.peer();
  lost.to = Here(connection.lane());
  Call(lane, [&](Actor& actor, Outbox& outbox) { actor.OnMessage(lost, outbox); });
}

void SimRuntime::Implementation::ChangeTimer(SimLane lane, const Outbox::Timer& timer) {
  Lane* found = FindLane(lane);
  if (!found->has_timers) {
    found->timers = timers_.AddLane(lane);
    found->has_timers = true;
  }
  if (timer.delay) {
    timers_.Set(found->timers, timer.id, *timer.delay);
  } else {
    timers_.Cancel(found->timers, timer.id);
  }
}

// Called while an exception of the lane's actor is handled.
void SimRuntime::Implementation::Fail(SimLane lane, ExitCode exit_code, const std::string& reason) {
  if (!network_.alive(lane.node())) return;
  const bool reported = lane.lane() != kApplicationLane &&
                        FindLane(SimLane(lane.node(), kApplicationLane)) != nullptr;
  Retire(FindLane(lane));
  if (!reported) throw;
  wire::End end;
  end.set_exit_code(static_cast<int>(exit_code));
  end.set_reason(reason);
  Send(lane, MakeEnvelope(MessageKind::kFailed, Here(kApplicationLane), end));
}

void SimRuntime::Implementation::Retire(Lane* lane) {
  if (lane->actor != nullptr) retired_.push_back(std::move(lane->actor));
  if (lane->has_timers) timers_.CancelAll(lane->timers);
  lane->work.reset();
}

}  // namespace poseidon
