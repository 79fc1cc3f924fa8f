#include "scheduler/journal/journal_gate.h"

#include <algorithm>
#include <utility>

namespace poseidon {

void JournalGate::OnStart(Outbox& outbox) {
  Run([this](Outbox& own) { actor_->OnStart(own); }, outbox);
}

void JournalGate::OnTimer(TimerId timer, Outbox& outbox) {
  if (timer == kRest) return Release(outbox);
  Run([this, timer](Outbox& own) { actor_->OnTimer(timer, own); }, outbox);
}

void JournalGate::OnMessage(const Envelope& envelope, Outbox& outbox) {
  if (envelope.kind != MessageKind::kJournaled) {
    return Run([this, &envelope](Outbox& own) { actor_->OnMessage(envelope, own); }, outbox);
  }
  written_ = std::max(written_, envelope.iteration);
  Release(outbox);
}

template <typename Call>
void JournalGate::Run(const Call& call, Outbox& outbox) {
  // The rest of the outbox is the actor's as it is.
  call(outbox);
  for (Outbox::Route& route : std::exchange(outbox.routes, {})) {
    if (Holds()) {
      held_.push_back({records_, std::move(route)});
    } else {
      outbox.routes.push_back(std::move(route));
    }
  }
  for (Envelope& envelope : std::exchange(outbox.messages, {})) {
    if (envelope.kind == MessageKind::kJournal) {
      envelope.iteration = ++records_;
      outbox.Send(std::move(envelope));
    } else if (Holds()) {
      held_.push_back({records_, std::move(envelope)});
    } else {
      outbox.Send(std::move(envelope));
    }
  }
}

void JournalGate::Release(Outbox& outbox) {
  while (!held_.empty() && held_.front().after <= written_) {
    if (auto* const route = std::get_if<Outbox::Route>(&held_.front().what)) {
      // Of an outbox the routes come before the messages.
      if (!outbox.messages.empty()) return outbox.SetTimer(kRest, Duration::zero());
      outbox.routes.push_back(std::move(*route));
    } else {
      outbox.Send(std::move(std::get<Envelope>(held_.front().what)));
    }
    held_.pop_front();
  }
}

}  // namespace poseidon
