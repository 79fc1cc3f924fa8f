#include "core/text/utf8.h"

#include <algorithm>
#include <cstdint>

namespace poseidon {
namespace {

// What the first byte of a character says of those that follow.
struct LeadingByte {
  size_t following;
  // The range of the second byte: a part of it would be a longer form of a smaller number, a
  // surrogate, or above the last character.
  uint8_t least;
  uint8_t most;
};

std::optional<LeadingByte> Leading(uint8_t byte) {
  constexpr uint8_t kLeast = 0x80;
  constexpr uint8_t kMost = 0xbf;
  if (byte < 0x80) return LeadingByte{0, 0, 0};
  if (byte < 0xc2) return std::nullopt;
  if (byte < 0xe0) return LeadingByte{1, kLeast, kMost};
  if (byte < 0xf0) {
    return LeadingByte{2, byte == 0xe0 ? uint8_t{0xa0} : kLeast,
                       byte == 0xed ? uint8_t{0x9f} : kMost};
  }
  if (byte < 0xf5) {
    return LeadingByte{3, byte == 0xf0 ? uint8_t{0x90} : kLeast,
                       byte == 0xf4 ? uint8_t{0x8f} : kMost};
  }
  return std::nullopt;
}

// The bytes of the character at the text's begin; 0 if there is none.
size_t CharacterSize(std::string_view text) {
  const auto at = [&text](size_t index) { return static_cast<uint8_t>(text[index]); };
  const std::optional<LeadingByte> leading = Leading(at(0));
  if (!leading || text.size() <= leading->following) return 0;
  for (size_t i = 1; i <= leading->following; ++i) {
    const uint8_t least = i == 1 ? leading->least : uint8_t{0x80};
    const uint8_t most = i == 1 ? leading->most : uint8_t{0xbf};
    if (at(i) < least || at(i) > most) return 0;
  }
  return leading->following + 1;
}

bool IsControl(char letter) {
  const auto byte = static_cast<uint8_t>(letter);
  return (byte < 0x20 && letter != '\n' && letter != '\t') || byte == 0x7f;
}

std::string Escaped(char letter) {
  constexpr const char* kDigits = "0123456789abcdef";
  const auto byte = static_cast<uint8_t>(letter);
  return std::string("\\x") + kDigits[byte >> 4] + kDigits[byte & 15];
}

}  // namespace

std::optional<size_t> FindNotUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t size = CharacterSize(text.substr(at));
    if (size == 0) return at;
    at += size;
  }
  return std::nullopt;
}

std::string Printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const size_t size = CharacterSize(text);
    if (size == 0 || IsControl(text[0])) {
      shown += Escaped(text[0]);
    } else {
      shown += text.substr(0, size);
    }
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  return shown;
}

std::string_view WithoutByteOrderMark(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

}  // namespace poseidon
