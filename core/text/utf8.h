// Text whose origin is a file, a flag or the network: is it UTF-8, and how may it be shown. Pure
// functions; thread-safe.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace poseidon {

// Where the first byte stands that is no UTF-8 (RFC 3629), from 0; nothing if all are.
std::optional<size_t> FindNotUtf8(std::string_view text);

// The text with bytes that are no UTF-8, and control characters but line ends and tabs, as
// backslash, x and two hexadecimal digits: a terminal must not obey them, and JSON can't hold them.
//
//   Printable("na\xffme")  // na\xffme, with a backslash
std::string Printable(std::string_view text);

// The text without the byte order mark that some editors put before it.
std::string_view WithoutByteOrderMark(std::string_view text);

}  // namespace poseidon
