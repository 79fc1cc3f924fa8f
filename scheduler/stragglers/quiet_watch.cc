#include "scheduler/stragglers/quiet_watch.h"

namespace poseidon {

void QuietWatch::Heard(Time now) {
  since_ = clock_.Look(now, interval());
  due_ = patience_;
}

std::optional<Duration> QuietWatch::Look(Time now) {
  const Duration quiet = clock_.Look(now, interval()) - since_;
  if (quiet < due_) return std::nullopt;
  due_ = 2 * quiet;
  return quiet;
}

}  // namespace poseidon
