#include "transport/actor.h"

#include <utility>

namespace poseidon {

void Outbox::Attach(int lane, std::unique_ptr<Actor> actor) {
  attachments.push_back({lane, std::move(actor)});
}

void Outbox::Clear() {
  identity.reset();
  window_bytes.reset();
  drop_queued = false;
  routes.clear();
  shared_routes.reset();
  attachments.clear();
  messages.clear();
  timers.clear();
  work.clear();
}

}  // namespace poseidon
