// SessionExchange: a Session as DeviceStaging's LayerExchange.
//
// Thread safety: the session's, but for Wake.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/session.h"
#include "client/staging/layer_exchange.h"

namespace poseidon {

class SessionExchange : public LayerExchange {
 public:
  // A session that has been declared; outlives this.
  explicit SessionExchange(Session& session) : session_(session) {}

  int64_t iteration() const override { return session_.iteration(); }
  const std::string& LayerName(int layer) const override { return session_.LayerName(layer); }
  Buffers buffers(int layer) const override {
    return {session_.host_values(layer), session_.gradient(layer), session_.memory()};
  }
  void GradientReady(int layer) override { session_.GradientReady(layer); }
  bool IsFresh(int layer, int64_t iteration) const override {
    return session_.IsFresh(layer, iteration);
  }
  void WaitUntil(const std::function<bool()>& done, const std::string& waiting_for) override {
    session_.WaitUntil(done, waiting_for);
  }
  void Wake() override { session_.Wake(); }
  std::optional<ProductUpdate> product_update(int layer) const override {
    return session_.product_update(layer);
  }
  Factors factors(int layer, int64_t iteration) const override {
    const FactorStack stack = session_.factors(layer, iteration);
    return {stack.u, stack.v};
  }
  std::span<float> optimizer_state(int layer) const override { return session_.state(layer); }
  void BringBeforeReading(std::function<void(int layer)> bring) override {
    session_.BringBeforeReading(std::move(bring));
  }
  PackedGradient packed_gradient(int layer) const override {
    const PackedBuffer packed = session_.packed_gradient(layer);
    return {packed.bytes, packed.codec};
  }
  std::vector<PackedChunk> packed_chunks() const override { return session_.packed_chunks(); }
  void AddExposed(Duration stood_still) override { session_.AddExposed(stood_still); }
  Trace* trace() override { return session_.trace(); }

 private:
  Session& session_;
};

}  // namespace poseidon
