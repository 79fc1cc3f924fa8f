#include "cli/input/deviations.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "core/error.h"
#include "core/units.h"

namespace poseidon {
namespace {

[[noreturn]] void Refuse(const std::string& entry, const std::string& why) {
  throw ConfigError("--deviations: \"" + entry + "\" " + why +
                    "; say how many times as long a worker computes, or what its machine's link "
                    "carries: --deviations=3:2x,5:1Gbps");
}

// All of the text is the number.
template <typename Number>
bool ReadNumber(const std::string& text, Number& number) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  return error == std::errc() && rest == end;
}

// A factor, "2x", or a rate, "1Gbps".
void Set(const std::string& entry, const std::string& value, Deviation& deviation) {
  double factor = 0;
  if (value.ends_with('x') && ReadNumber(value.substr(0, value.size() - 1), factor)) {
    if (deviation.has_compute_factor()) Refuse(entry, "is the second factor of its worker");
    return deviation.set_compute_factor(factor);
  }
  try {
    ParseBitRate(value);
  } catch (const ConfigError&) {
    Refuse(entry, "has neither a factor nor a rate");
  }
  if (deviation.has_bandwidth()) Refuse(entry, "is the second rate of its worker");
  deviation.set_bandwidth(value);
}

}  // namespace

std::vector<Deviation> ParseDeviations(const std::string& text) {
  std::vector<Deviation> deviations;  // as they are given, which is how messages count them
  std::istringstream entries(text);
  for (std::string entry; std::getline(entries, entry, ',');) {
    const size_t colon = std::min(entry.find(':'), entry.size());
    int worker = 0;
    if (!ReadNumber(entry.substr(0, colon), worker)) Refuse(entry, "begins with no worker's rank");
    const std::string value = colon == entry.size() ? "" : entry.substr(colon + 1);
    const auto known = std::ranges::find(deviations, worker, &Deviation::worker);
    if (known != deviations.end()) {
      Set(entry, value, *known);
      continue;
    }
    deviations.emplace_back().set_worker(worker);
    Set(entry, value, deviations.back());
  }
  return deviations;
}

}  // namespace poseidon
