// SessionExchange: a Session as DeviceStage's LayerExchange.
//
// Thread safety: the session's, but for Wake.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "client/layer_exchange.h"
#include "client/session.h"

namespace poseidon {

class SessionExchange : public LayerExchange {
 public:
  // A session that has been declared; outlives this.
  explicit SessionExchange(Session& session) : session_(session) {}

  int64_t iteration() const override { return session_.iteration(); }
  const std::string& LayerName(int layer) const override { return session_.LayerName(layer); }
  Buffers buffers(int layer) const override {
    return {session_.values(layer), session_.gradient(layer), session_.memory()};
  }
  void GradientReady(int layer) override { session_.GradientReady(layer); }
  bool IsFresh(int layer, int64_t iteration) const override {
    return session_.IsFresh(layer, iteration);
  }
  void WaitUntil(const std::function<bool()>& done, const std::string& waiting_for) override {
    session_.WaitUntil(done, waiting_for);
  }
  void Wake() override { session_.Wake(); }

 private:
  Session& session_;
};

}  // namespace poseidon
