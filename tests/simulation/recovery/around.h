// Around: an actor in another's place, which sees, or changes, what that one gets and sends: for
// SimOptions.wrap.
#pragma once

#include <memory>
#include <utility>

#include "transport/actor.h"

namespace poseidon {

class Around : public Actor {
 public:
  explicit Around(std::unique_ptr<Actor> inner) : inner_(std::move(inner)) {}

  void OnStart(Outbox& outbox) final {
    inner_->OnStart(outbox);
    Finish(outbox);
  }
  void OnMessage(const Envelope& envelope, Outbox& outbox) final {
    Receive(envelope, outbox);
    Finish(outbox);
  }
  void OnTimer(TimerId timer, Outbox& outbox) final {
    Expire(timer, outbox);
    Finish(outbox);
  }

 protected:
  Actor& inner() { return *inner_; }
  virtual void Receive(const Envelope& envelope, Outbox& outbox) {
    inner_->OnMessage(envelope, outbox);
  }
  virtual void Expire(TimerId timer, Outbox& outbox) { inner_->OnTimer(timer, outbox); }
  // What one call of the inner actor, or a piece of its work, has left to be carried out.
  virtual void Sent(Outbox& outbox) { (void)outbox; }

 private:
  void Finish(Outbox& outbox) {
    for (Work& work : outbox.work) {
      work.done = [this, done = std::move(work.done)](Outbox& later) {
        done(later);
        Finish(later);
      };
    }
    Sent(outbox);
  }

  std::unique_ptr<Actor> inner_;
};

}  // namespace poseidon
