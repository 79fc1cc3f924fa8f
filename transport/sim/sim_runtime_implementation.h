// How SimRuntime does what it does; nobody else's.
#pragma once

#include <glog/logging.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "transport/sim/sim_connection.h"
#include "transport/sim/sim_event_queue.h"
#include "transport/sim/sim_network.h"
#include "transport/sim/sim_pool.h"
#include "transport/sim/sim_routes.h"
#include "transport/sim/sim_runtime.h"
#include "transport/sim/sim_timers.h"
#include "transport/work_queue.h"

namespace poseidon {

// An endpoint is "sim://NODE/LANE".
inline constexpr std::string_view kSimScheme = "sim://";

class SimRuntime::Implementation {
 public:
  explicit Implementation(const SimOptions& options)
      : options_(options), network_(&options_, &events_, &statistics_), timers_(&events_) {}

  int AddGroup(const UplinkSpec& uplink, int parent) { return network_.AddGroup(uplink, parent); }
  int AddMachine(const NicSpec& nic, int group) { return network_.AddMachine(nic, group); }
  SimNode AddNode(NodeId self, int machine);
  void Attach(SimNode node, int lane, std::unique_ptr<Actor> actor);
  void SetRoute(SimNode node, const Address& to, const std::string& endpoint);
  void Kill(SimNode node);
  void At(Time when, std::function<void()> action) {
    events_.Push(when, SimEventKind::kAction, actions_.Put(std::move(action)));
  }
  Time Run(Time deadline);
  void Halt() { halted_ = true; }
  Time now() const { return events_.now(); }
  const SimStatistics& statistics() const { return statistics_; }

 private:
  struct LaneWork {
    WorkQueue queue;
    // The turn that is queued at the lane, if one is; and what is left of its time after slices.
    std::optional<Time> end;
    Duration time{};
  };
  struct Lane {
    std::unique_ptr<Actor> actor;
    bool started = false;
    Time busy_until = Time::min();  // with what has arrived so far
    bool has_timers = false;
    SimTimers::LaneIndex timers = 0;  // if has_timers
    std::unique_ptr<LaneWork> work;   // null: none so far
  };
  struct Node {
    NodeId self;
    std::vector<Lane> lanes;  // from kApplicationLane on
    SimRoutes routes;
    std::vector<SimConnection> watched;
    std::shared_ptr<const SimRoutes> shared_routes;  // where `routes` has none; may be null
  };

  Node& NodeAt(SimNode node) {
    CHECK(node >= 0 && static_cast<size_t>(node) < nodes_.size()) << "no simulated node " << node;
    return nodes_[static_cast<size_t>(node)];
  }
  Lane* FindLane(SimLane lane);
  void SkipTimersNotDue();
  void Handle(const SimEvent& event);
  void Start(SimLane lane);
  void Arrive(SimTransfer transfer);
  void Deliver(SimTransfer transfer);
  // Calls an actor and carries out its outbox.
  template <typename Function>
  void Call(SimLane lane, const Function& function) {
    Call(lane, outbox_, function);
  }
  template <typename Function>
  void Call(SimLane lane, Outbox& outbox, const Function& function);
  void CarryOut(SimLane lane, Outbox& outbox);
  Duration TimeOf(const ArithmeticAmount& amount) const;
  // Takes the lane's next turn of work into its queue.
  void QueueWork(SimLane lane);
  void CarryOnWork(SimLane lane);
  void RunSlice(SimLane lane, Outbox& outbox);
  // What an actor that is replaced has left to do, at once.
  void FinishWork(SimLane lane);
  SimLane Resolve(SimNode node, const Address& to, const std::string& endpoint) const;
  void ShareRoutes(SimNode node, std::shared_ptr<const std::vector<Outbox::Route>> routes);
  SimLane FindRoute(SimNode node, const Address& to);
  void Watch(SimLane lane, const Outbox::Route& route);
  // The node's connection to a lane; null if it is not watched.
  SimConnection* FindWatched(SimNode node, SimLane to);
  // Of watched connections that have just lost an envelope, looks later whether they are lost.
  void AwaitLosses();
  void TellIfLost(SimNode node, SimLane to);
  void Send(SimLane from, Envelope envelope);
  void ChangeTimer(SimLane lane, const Outbox::Timer& timer);
  void Fail(SimLane lane, ExitCode exit_code, const std::string& reason);
  void Retire(Lane* lane);

  const SimOptions options_;
  SimEventQueue events_;
  SimStatistics statistics_;
  SimNetwork network_;
  SimTimers timers_;
  SimPool<std::function<void()>> actions_;
  SimPool<SimTransfer> held_;  // at a lane that is busy
  std::vector<Node> nodes_;
  // The last routes that nodes share, and what they resolve to.
  std::shared_ptr<const std::vector<Outbox::Route>> shared_source_;
  std::shared_ptr<const SimRoutes> shared_routes_;
  Outbox outbox_;
  // Replaced or killed during the current event; one of them may be the actor that is running.
  std::vector<std::unique_ptr<Actor>> retired_;
  bool running_ = false;
  bool halted_ = false;
};

}  // namespace poseidon
