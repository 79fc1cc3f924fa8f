// Quantities as people write them in flags and configs: "2MB", "10Gbps", "50us".
//
// A number is digits with an optional fraction, then a unit, spaces between them allowed. There is
// no default unit, so that nobody has to remember one. Units are read as written: B is a byte and b
// a bit, M is mega and m is milli. What a Parse function refuses (no or another unit, a sign, an
// amount that is not whole in the smallest unit or does not fit) is a ConfigError that quotes the
// text and lists the units.
//
// Formatting is exact, Parse(Format(x)) == x, and as short as that allows: 2000000 bytes are "2MB",
// 2097152 are "2MiB". A report that wants fewer digits rounds first. Amounts are not negative,
// except that a negative duration (a difference of times) is printed with a minus sign.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/time.h"

namespace poseidon {

// Bytes: B; KB, MB, GB, TB (powers of 1000); KiB, MiB, GiB, TiB (powers of 1024).
int64_t ParseBytes(std::string_view text);
std::string FormatBytes(int64_t bytes);

// Bits per second: bps, Kbps, Mbps, Gbps, Tbps (powers of 1000, as link rates are quoted).
int64_t ParseBitRate(std::string_view text);
std::string FormatBitRate(int64_t bits_per_second);

// Durations: ns, us, ms, s, min, h.
Duration ParseDuration(std::string_view text);
std::string FormatDuration(Duration duration);

}  // namespace poseidon
