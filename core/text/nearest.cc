#include "core/text/nearest.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace poseidon {
namespace {

// Rows are by how many letters of `a` are looked at, their entries by those of `b`.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  std::vector<size_t> last = row;
  for (size_t i = 0; i < a.size(); ++i) {
    const std::vector<size_t> before_last = std::exchange(last, row);
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = last[j] + (a[i] == b[j] ? 0 : 1);
      row[j + 1] = std::min({replaced, row[j] + 1, last[j + 1] + 1});
      const bool exchanged = i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j];
      if (exchanged) row[j + 1] = std::min(row[j + 1], before_last[j - 1] + 1);
    }
  }
  return row.back();
}

}  // namespace

std::optional<std::string> Nearest(const std::string& text, const std::vector<std::string>& names) {
  std::optional<std::string> nearest;
  size_t least = text.size() / 2 + 1;
  for (const std::string& name : names) {
    const size_t distance = EditDistance(text, name);
    if (distance < least) {
      nearest = name;
      least = distance;
    }
  }
  return nearest;
}

}  // namespace poseidon
