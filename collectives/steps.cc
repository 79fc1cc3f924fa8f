#include "collectives/steps.h"

#include <glog/logging.h>

#include <algorithm>

namespace poseidon {

Steps::Stored::Stored(Schedule schedule) : schedule_(std::move(schedule)) {
  for (int i = 0; i < size(); ++i) {
    const Operation& operation = At(i);
    if (operation.kind != Operation::Kind::kAdd && operation.kind != Operation::Kind::kCopy) {
      continue;
    }
    awaited_.emplace_back(operation.peer, operation.step, i);
  }
  std::sort(awaited_.begin(), awaited_.end());
  const auto twice =
      std::adjacent_find(awaited_.begin(), awaited_.end(), [](const auto& a, const auto& b) {
        return std::get<0>(a) == std::get<0>(b) && std::get<1>(a) == std::get<1>(b);
      });
  CHECK(twice == awaited_.end()) << "a schedule receives step " << std::get<1>(*twice) << " twice";
}

std::optional<int> Steps::Stored::Awaiting(int peer, int step) const {
  const auto found = std::lower_bound(awaited_.begin(), awaited_.end(), std::tuple(peer, step, 0));
  if (found == awaited_.end() || std::get<0>(*found) != peer || std::get<1>(*found) != step) {
    return std::nullopt;
  }
  return std::get<2>(*found);
}

}  // namespace poseidon
