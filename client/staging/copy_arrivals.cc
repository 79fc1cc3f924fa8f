#include "client/staging/copy_arrivals.h"

namespace poseidon {

CopyArrivals::CopyArrivals(LayerExchange& exchange, size_t layers, size_t replicas)
    : replicas_(replicas), missing_(layers), exchange_(&exchange) {
  on_host_.reserve(layers);
}

void CopyArrivals::Expect(int layer, CopyDirection direction) {
  const std::lock_guard lock(mutex_);
  Missing(layer, direction) += replicas_;
}

void CopyArrivals::Arrive(int layer, CopyDirection direction) {
  const std::lock_guard lock(mutex_);
  if (--Missing(layer, direction) > 0) return;
  if (direction == CopyDirection::kToHost) on_host_.push_back(layer);
  if (exchange_ != nullptr) exchange_->Wake();
}

bool CopyArrivals::IsUnderWay(int layer, CopyDirection direction) {
  const std::lock_guard lock(mutex_);
  return Missing(layer, direction) > 0;
}

void CopyArrivals::Take(std::vector<int>& layers) {
  layers.clear();
  const std::lock_guard lock(mutex_);
  layers.swap(on_host_);
}

void CopyArrivals::ExpectOther() {
  const std::lock_guard lock(mutex_);
  ++others_;
}

void CopyArrivals::ArriveOther() {
  const std::lock_guard lock(mutex_);
  --others_;
  if (exchange_ != nullptr) exchange_->Wake();
}

bool CopyArrivals::IsOtherUnderWay() {
  const std::lock_guard lock(mutex_);
  return others_ > 0;
}

void CopyArrivals::Close() {
  const std::lock_guard lock(mutex_);
  exchange_ = nullptr;
}

}  // namespace poseidon
