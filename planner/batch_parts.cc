#include "planner/batch_parts.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace poseidon {

std::vector<int64_t> DivideBatch(int64_t samples, const std::vector<double>& speeds) {
  CHECK_GE(samples, static_cast<int64_t>(speeds.size()));
  const double all = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  std::vector<double> shares;
  std::vector<int64_t> parts;
  for (const double speed : speeds) {
    CHECK_GT(speed, 0);
    shares.push_back(static_cast<double>(samples) * speed / all);
    parts.push_back(std::max<int64_t>(1, std::llround(std::floor(shares.back()))));
  }
  // By how much a part is below its share.
  const auto lack = [&](size_t i) { return shares[i] - static_cast<double>(parts[i]); };
  int64_t left = samples - std::accumulate(parts.begin(), parts.end(), int64_t{0});
  const auto best = [&](const auto& is_better) {
    size_t found = 0;
    for (size_t i = 1; i < parts.size(); ++i) {
      if (is_better(i, found)) found = i;
    }
    return found;
  };
  for (; left > 0; --left) ++parts[best([&](size_t a, size_t b) { return lack(a) > lack(b); })];
  // Parts were raised to one sample: whoever has most beyond its share gives.
  for (; left < 0; ++left) {
    --parts[best([&](size_t a, size_t b) {
      if ((parts[a] > 1) != (parts[b] > 1)) return parts[a] > 1;
      return lack(a) < lack(b);
    })];
  }
  return parts;
}

void SetFirstParts(const Job& job, const ModelSpec& model, Plan& plan) {
  const Training& training = job.training();
  if (training.batch() != Training::BALANCED) return;
  for (const int32_t part : training.part()) plan.add_parts(part);
  if (!plan.parts().empty()) return;
  std::vector<double> speeds(plan.workers(), 1);
  for (const Deviation& deviation : job.cluster().deviation()) {
    speeds.at(deviation.worker()) = 1 / deviation.compute_factor();
  }
  const int64_t batch = model.batch() / std::max<int64_t>(1, model.passes());
  const std::vector<int64_t> parts = DivideBatch(plan.workers() * batch, speeds);
  plan.mutable_parts()->Assign(parts.begin(), parts.end());
}

}  // namespace poseidon
