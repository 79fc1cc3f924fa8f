#include "scheduler/journal/journal_gate.h"

#include <glog/logging.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/units.h"
#include "proto/wire.pb.h"
#include "transport/membership/member.h"

namespace poseidon {
namespace {

constexpr int64_t kEverything = std::numeric_limits<int64_t>::max();

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
  if (timer == kLook) return Look(outbox);
  Run([this, timer](Outbox& own) { actor_->OnTimer(timer, own); }, outbox);
}

void JournalGate::OnMessage(const Envelope& envelope, Outbox& outbox) {
  if (envelope.kind != MessageKind::kJournaled) {
    return Run([this, &envelope](Outbox& own) { actor_->OnMessage(envelope, own); }, outbox);
  }
  if (envelope.iteration > written_) {
    written_ = envelope.iteration;
    if (records_ > written_) BeginLooking(outbox);
  }
  Release(outbox);
}

template <typename Call>
void JournalGate::Run(const Call& call, Outbox& outbox) {
  const bool waited = records_ > written_;
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
  if (!waited && records_ > written_) BeginLooking(outbox);
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

void JournalGate::BeginLooking(Outbox& outbox) {
  looks_ = 0;
  outbox.SetTimer(kLook, patience_ / kLooks);
}

void JournalGate::Look(Outbox& outbox) {
  if (records_ <= written_) return;
  if (++looks_ == kLooks) return GiveUp(outbox);
  outbox.SetTimer(kLook, patience_ / kLooks);
}

void JournalGate::GiveUp(Outbox& outbox) {
  const std::string why =
      "can't write scheduler.journal: the disk of the scheduler's --out has not answered for " +
      FormatDuration(patience_) +
      ", and without its journal the job would not survive its scheduler; see whether the file "
      "server is there";
  LOG(ERROR) << why;
  const Envelope stop =
      MakeEnvelope(MessageKind::kStop, Here(kControlLane), MakeEnd(ExitCode::kFailure, why));
  // Behind what is held. A job whose end is held itself ends as it was to.
  Run([this, &stop](Outbox& own) { actor_->OnMessage(stop, own); }, outbox);
  wire::Notice notice;
  notice.set_text(why);
  notice.set_rank(-1);
  outbox.Send(MakeEnvelope(MessageKind::kNotice, Here(kApplicationLane), notice));
  written_ = kEverything;
  Release(outbox);
}

}  // namespace poseidon
