#include "transport/sim/sim_runtime.h"

#include <utility>

#include "transport/sim/sim_runtime_implementation.h"

namespace poseidon {

SimRuntime::SimRuntime(const SimOptions& options)
    : implementation_(std::make_unique<Implementation>(options)) {}
SimRuntime::~SimRuntime() = default;

int SimRuntime::AddGroup(const UplinkSpec& uplink, int parent) {
  return implementation_->AddGroup(uplink, parent);
}
int SimRuntime::AddMachine(const NicSpec& nic, int group) {
  return implementation_->AddMachine(nic, group);
}
SimNode SimRuntime::AddNode(NodeId self, int machine) {
  return implementation_->AddNode(self, machine);
}
std::string SimRuntime::endpoint(SimNode node, int lane) const {
  return std::string(kSimScheme) + std::to_string(node) + "/" + std::to_string(lane);
}
void SimRuntime::Attach(SimNode node, int lane, std::unique_ptr<Actor> actor) {
  implementation_->Attach(node, lane, std::move(actor));
}
void SimRuntime::SetRoute(SimNode node, const Address& to, const std::string& endpoint) {
  implementation_->SetRoute(node, to, endpoint);
}
void SimRuntime::Kill(SimNode node) { implementation_->Kill(node); }
void SimRuntime::At(Time when, std::function<void()> action) {
  implementation_->At(when, std::move(action));
}
Time SimRuntime::Run(Time deadline) { return implementation_->Run(deadline); }
void SimRuntime::Halt() { implementation_->Halt(); }
Time SimRuntime::now() const { return implementation_->now(); }
const SimStatistics& SimRuntime::statistics() const { return implementation_->statistics(); }

}  // namespace poseidon
