// JournalGate: lets nothing out of an actor before what it decided earlier is written down.
//
// The actor says what is to be written by sending kJournal (wire::JournalRecord). The gate passes
// that on at once, and holds back what the actor sends afterwards, in this call and later ones,
// until the application has answered kJournaled: the record outlives the process. So the actor need
// not wait itself, and whoever takes its place has read all that anybody may have heard of. A
// route is held back behind messages that are: one of these may be to who had that address before.
// So are actors for other lanes, which watch those who are yet to hear, and what sets a timer: a
// deadline counts from when the question has left, however slow the disk is.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <variant>

#include "transport/actor.h"

namespace poseidon {

class JournalGate : public Actor {
 public:
  explicit JournalGate(std::unique_ptr<Actor> actor) : actor_(std::move(actor)) {}
  void OnStart(Outbox& outbox) override;
  // kJournaled has the number of the kJournal that it answers as `iteration`; they are answered in
  // order, and the answer to one may stand for those before it.
  void OnMessage(const Envelope& envelope, Outbox& outbox) override;
  void OnTimer(TimerId timer, Outbox& outbox) override;

 private:
  struct Held {
    int64_t after = 0;  // the number of the record that must be written before
    std::variant<Envelope, Outbox::Route, Outbox::Attachment, Outbox::Timer> what;
  };

  // Release goes on. Above the actor's own.
  static constexpr TimerId kRest = 1000;

  // Calls the actor with an outbox of its own.
  template <typename Call>
  void Run(const Call& call, Outbox& outbox);
  bool Holds() const { return records_ > written_ || !held_.empty(); }
  void Release(Outbox& outbox);

  std::unique_ptr<Actor> actor_;
  int64_t records_ = 0;  // that the actor has sent
  int64_t written_ = 0;  // of these
  std::deque<Held> held_;
};

}  // namespace poseidon
