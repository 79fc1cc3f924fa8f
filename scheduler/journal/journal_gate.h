// JournalGate: lets nothing out of an actor before what it decided earlier is written down.
//
// The actor says what is to be written by sending kJournal (wire::JournalRecord). The gate passes
// that on at once, and holds back what the actor sends afterwards, in this call and later ones,
// until the application has answered kJournaled: the record outlives the process. So the actor need
// not wait itself, and whoever takes its place has read all that anybody may have heard of. A
// route is held back behind messages that are: one of these may be to who had that address before.
// So are actors for other lanes, which watch those who are yet to hear, and what sets a timer: a
// deadline counts from when the question has left, however slow the disk is.
//
// A disk may hang, and the application with it. If it has not written a record after `patience`,
// and none before it meanwhile, the gate tells the actor in the application's place that the job
// has to end (kStop), and the application itself why (kNotice), and holds nothing back any more.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <variant>

#include "core/time.h"
#include "scheduler/journal/journal_writer.h"
#include "transport/actor.h"

namespace poseidon {

class JournalGate : public Actor {
 public:
  explicit JournalGate(std::unique_ptr<Actor> actor, Duration patience = kJournalPatience)
      : actor_(std::move(actor)), patience_(patience) {}
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

  // Above the actor's own. Release goes on:
  static constexpr TimerId kRest = 1000;
  // Whether something has been written since the last look:
  static constexpr TimerId kLook = 1001;
  // So many looks are `patience`. A process that was stopped meanwhile, whose timers are all due
  // when it goes on, has the rest of them to hear that its record is written.
  static constexpr int kLooks = 4;

  // Calls the actor with an outbox of its own.
  template <typename Call>
  void Run(const Call& call, Outbox& outbox);
  bool Holds() const { return records_ > written_ || !held_.empty(); }
  void Release(Outbox& outbox);
  void BeginLooking(Outbox& outbox);
  void Look(Outbox& outbox);
  void GiveUp(Outbox& outbox);

  std::unique_ptr<Actor> actor_;
  Duration patience_;
  int64_t records_ = 0;  // that the actor has sent
  int64_t written_ = 0;  // of these; kEverything once the journal is given up
  int looks_ = 0;        // since something was written
  std::deque<Held> held_;
};

}  // namespace poseidon
