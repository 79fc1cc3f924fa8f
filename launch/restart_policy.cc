#include "launch/restart_policy.h"

#include <algorithm>
#include <chrono>

#include "core/error.h"

namespace poseidon {
namespace {

// See the header.
constexpr Duration kFirstBackoff = std::chrono::milliseconds(500);
constexpr Duration kLongestBackoff = Seconds(30);
constexpr Duration kSettled = Seconds(60);

Duration BackoffAfter(int restarts) {
  Duration backoff{};
  for (int i = 0; i < restarts && backoff < kLongestBackoff; ++i) {
    backoff = backoff == Duration{} ? kFirstBackoff : 2 * backoff;
  }
  return std::min(backoff, kLongestBackoff);
}

}  // namespace

bool MayStartAgain(const ExitStatus& status) {
  return status.signal != 0 || status.code == static_cast<int>(ExitCode::kGivenUp);
}

std::string RestartNews(const std::string& name, const ExitStatus& status, Duration wait) {
  std::string news = name + " " + status.ToString() + "; it is started again";
  if (wait <= Duration::zero()) return news;
  return news + " in " + std::to_string(ToSeconds(wait)).substr(0, 4) + " s";
}

Time RestartBackoff::AfterDeath(Time now) {
  if (now - started_ > kSettled) in_a_row_ = 0;
  return now + BackoffAfter(in_a_row_);
}

void RestartBackoff::Restarted(Time now) {
  started_ = now;
  ++in_a_row_;
}

}  // namespace poseidon
