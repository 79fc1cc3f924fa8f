#include "core/units.h"

#include <glog/logging.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <span>

#include "core/error.h"

namespace poseidon {
namespace {

struct Unit {
  std::string_view name;
  int64_t factor;  // in smallest units: bytes, bits per second, nanoseconds
};

struct Quantity {
  std::string_view name;     // for messages
  std::string_view example;  // for messages
  std::span<const Unit> units;
};

constexpr int64_t kKilo = 1000, kKibi = 1024;
constexpr Unit kByteUnits[] = {
    {"B", 1},
    {"KB", kKilo},
    {"KiB", kKibi},
    {"MB", kKilo* kKilo},
    {"MiB", kKibi* kKibi},
    {"GB", kKilo* kKilo* kKilo},
    {"GiB", kKibi* kKibi* kKibi},
    {"TB", kKilo* kKilo* kKilo* kKilo},
    {"TiB", kKibi* kKibi* kKibi* kKibi},
};
constexpr Unit kBitRateUnits[] = {
    {"bps", 1},
    {"Kbps", kKilo},
    {"Mbps", kKilo* kKilo},
    {"Gbps", kKilo* kKilo* kKilo},
    {"Tbps", kKilo* kKilo* kKilo* kKilo},
};
constexpr int64_t kSecond = kKilo * kKilo * kKilo;
constexpr Unit kDurationUnits[] = {
    {"ns", 1},      {"us", kKilo},         {"ms", kKilo* kKilo},
    {"s", kSecond}, {"min", 60 * kSecond}, {"h", 3600 * kSecond},
};

constexpr Quantity kBytes{"a size in bytes", "2MB", kByteUnits};
constexpr Quantity kBitRate{"a rate in bits per second", "10Gbps", kBitRateUnits};
constexpr Quantity kDuration{"a duration", "50us", kDurationUnits};

[[noreturn]] void Refuse(std::string_view text, const Quantity& quantity, const std::string& why) {
  std::string message = "\"" + std::string(text) + "\" is not " + std::string(quantity.name) +
                        " such as " + std::string(quantity.example) + ": " + why + " (units:";
  for (const Unit& unit : quantity.units) message += " " + std::string(unit.name);
  throw ConfigError(message + ")");
}

// A decimal number: digits * 10^-decimals.
struct Decimal {
  __int128 digits = 0;
  int decimals = 0;
};

// Enough for every int64_t (19 digits), and times the largest unit (13 digits) far within 128 bits.
constexpr int kMaxDigits = 19;

std::optional<Decimal> ParseDecimal(std::string_view text) {
  Decimal decimal;
  int digits = 0;
  bool fraction = false;
  for (char c : text) {
    if (c == '.' && !fraction && digits > 0) {
      fraction = true;
    } else if (c >= '0' && c <= '9' && digits < kMaxDigits) {
      decimal.digits = decimal.digits * 10 + (c - '0');
      ++digits;
      decimal.decimals += fraction ? 1 : 0;
    } else {
      return std::nullopt;
    }
  }
  if (digits == 0 || text.back() == '.') return std::nullopt;
  return decimal;
}

const Unit* FindUnit(const Quantity& quantity, std::string_view name) {
  for (const Unit& unit : quantity.units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

int64_t Parse(std::string_view text, const Quantity& quantity) {
  const size_t number_end = std::min(text.find_first_not_of("0123456789."), text.size());
  const size_t unit_begin = std::min(text.find_first_not_of(' ', number_end), text.size());
  const std::optional<Decimal> number = ParseDecimal(text.substr(0, number_end));
  if (!number)
    Refuse(text, quantity,
           "it must begin with a number of at most " + std::to_string(kMaxDigits) + " digits");
  if (unit_begin == text.size()) Refuse(text, quantity, "the unit is missing");
  const Unit* unit = FindUnit(quantity, text.substr(unit_begin));
  if (unit == nullptr) {
    Refuse(text, quantity, "unknown unit \"" + std::string(text.substr(unit_begin)) + "\"");
  }
  __int128 amount = number->digits * unit->factor;
  for (int i = 0; i < number->decimals; ++i) {
    if (amount % 10 != 0) {
      Refuse(text, quantity,
             "it is not a whole number of " + std::string(quantity.units.front().name));
    }
    amount /= 10;
  }
  if (amount > std::numeric_limits<int64_t>::max()) Refuse(text, quantity, "it is too large");
  return static_cast<int64_t>(amount);
}

// `amount`, not negative, in `unit`, if three decimals express it exactly.
std::optional<std::string> FormatIn(const Unit& unit, int64_t amount) {
  const __int128 scaled = static_cast<__int128>(amount) * 1000;
  if (scaled % unit.factor != 0) return std::nullopt;
  const __int128 thousandths = scaled / unit.factor;
  std::string text = std::to_string(static_cast<int64_t>(thousandths / 1000));
  const auto fraction = static_cast<int>(thousandths % 1000);
  if (fraction > 0) {
    text += "." + std::to_string(1000 + fraction).substr(1);
    text.erase(text.find_last_not_of('0') + 1);
  }
  return text + std::string(unit.name);
}

// The shortest exact text; of equally short ones, that of the smallest unit.
std::string Format(int64_t amount, const Quantity& quantity) {
  CHECK_GE(amount, 0) << "not " << quantity.name;
  std::string shortest;
  for (const Unit& unit : quantity.units) {
    const std::optional<std::string> text = FormatIn(unit, amount);
    if (text && (shortest.empty() || text->size() < shortest.size())) shortest = *text;
  }
  return shortest;
}

}  // namespace

int64_t ParseBytes(std::string_view text) { return Parse(text, kBytes); }
std::string FormatBytes(int64_t bytes) { return Format(bytes, kBytes); }

int64_t ParseBitRate(std::string_view text) { return Parse(text, kBitRate); }
std::string FormatBitRate(int64_t bits_per_second) { return Format(bits_per_second, kBitRate); }

Duration ParseDuration(std::string_view text) { return Duration(Parse(text, kDuration)); }
std::string FormatDuration(Duration duration) {
  if (duration < Duration::zero()) return "-" + FormatDuration(-duration);
  return Format(duration.count(), kDuration);
}

}  // namespace poseidon
