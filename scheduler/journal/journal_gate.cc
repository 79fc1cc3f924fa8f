#include "scheduler/journal/journal_gate.h"

#include <algorithm>
#include <utility>

namespace poseidon {
namespace {

void Add(Envelope&& envelope, Outbox& outbox) { outbox.Send(std::move(envelope)); }
void Add(Outbox::Route&& route, Outbox& outbox) { outbox.routes.push_back(std::move(route)); }
void Add(Outbox::Attachment&& attachment, Outbox& outbox) {
  outbox.attachments.push_back(std::move(attachment));
}
void Add(Outbox::Timer&& timer, Outbox& outbox) { outbox.timers.push_back(timer); }

}  // namespace

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
  if (!Holds()) return;
  for (Outbox::Attachment& attachment : std::exchange(outbox.attachments, {})) {
    held_.push_back({records_, std::move(attachment)});
  }
  for (const Outbox::Timer& timer : std::exchange(outbox.timers, {})) {
    // Of what was set before nothing is to come any more, be it held or not.
    std::erase_if(held_, [&timer](const Held& held) {
      const auto* const earlier = std::get_if<Outbox::Timer>(&held.what);
      return earlier != nullptr && earlier->id == timer.id;
    });
    outbox.CancelTimer(timer.id);
    held_.push_back({records_, timer});
  }
}

void JournalGate::Release(Outbox& outbox) {
  while (!held_.empty() && held_.front().after <= written_) {
    auto& what = held_.front().what;
    // Of an outbox the routes come before the messages.
    const bool is_route = std::holds_alternative<Outbox::Route>(what);
    if (is_route && !outbox.messages.empty()) return outbox.SetTimer(kRest, Duration::zero());
    std::visit([&outbox](auto& held) { Add(std::move(held), outbox); }, what);
    held_.pop_front();
  }
}

}  // namespace poseidon
