#include "launch/restart_policy.h"

#include <algorithm>

#include "core/error.h"

namespace poseidon {
namespace {

// See the header.
constexpr Duration kLongestBackoff = Seconds(30);
constexpr Duration kSettled = Seconds(60);

Duration BackoffAfter(int restarts, Duration first) {
  Duration backoff{};
  for (int i = 0; i < restarts && backoff < kLongestBackoff; ++i) {
    backoff = backoff == Duration{} ? first : 2 * backoff;
  }
  return std::min(backoff, kLongestBackoff);
}

}  // namespace

std::string In(Duration wait) {
  if (wait <= Duration::zero()) return "";
  return " in " + std::to_string(ToSeconds(wait)).substr(0, 4) + " s";
}

bool MayStartAgain(const ExitStatus& status) {
  return status.signal != 0 || status.code == static_cast<int>(ExitCode::kGivenUp);
}

std::string RestartNews(const std::string& name, const ExitStatus& status, Duration wait) {
  return name + " " + status.ToString() + "; it is started again" + In(wait);
}

std::string NotStartedNews(const std::string& name, const Error& error, Duration wait) {
  return name + " can't be started again (" + error.what() + "); it is tried again" + In(wait);
}

Time RestartBackoff::AfterDeath(Time now) {
  if (now - started_ > kSettled) in_a_row_ = 0;
  return now + BackoffAfter(in_a_row_, first_);
}

void RestartBackoff::Restarted(Time now) {
  started_ = now;
  ++in_a_row_;
}

}  // namespace poseidon
