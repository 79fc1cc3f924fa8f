#include "client/syncer.h"

#include "proto/update_rule.h"

namespace poseidon {

SyncContext::SyncContext(wire::PlanAndModel plan_and_model,
                         std::shared_ptr<const ModelMemory> model_memory)
    : plan(std::move(plan_and_model)),
      rule(ToUpdateRule(plan.model().update_rule())),
      memory(std::move(model_memory)),
      traffic(plan.plan().layers_size()) {}

}  // namespace poseidon
