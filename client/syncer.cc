#include "client/syncer.h"

#include "proto/update_rule.h"

namespace poseidon {

SyncContext::SyncContext(wire::PlanAndModel plan_and_model,
                         std::shared_ptr<const ModelMemory> model_memory)
    : plan(std::move(plan_and_model)),
      rule(ToUpdateRule(plan.model().update_rule())),
      memory(std::move(model_memory)),
      traffic(plan.plan().layers_size()) {}

void AddTraffic(const SyncContext& context, wire::WorkerReport& report) {
  for (size_t layer = 0; layer < context.traffic.size(); ++layer) {
    const TrafficCounter& counter = context.traffic[layer];
    wire::LayerTraffic* traffic = report.add_layers();
    traffic->set_name(context.plan.plan().layers(static_cast<int>(layer)).name());
    traffic->set_bytes_sent(counter.bytes_sent);
    traffic->set_bytes_received(counter.bytes_received);
  }
  report.set_dropped_frames(report.dropped_frames() + context.dropped_frames);
}

}  // namespace poseidon
