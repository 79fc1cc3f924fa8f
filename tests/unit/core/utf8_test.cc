#include "core/text/utf8.h"

#include <gtest/gtest.h>

namespace poseidon {
namespace {

TEST(ByteOrderMark, IsSkippedAtTheBeginOnly) {
  EXPECT_EQ(WithoutByteOrderMark("\xef\xbb\xbf"
                                 "a\xef\xbb\xbf"),
            "a\xef\xbb\xbf");
  EXPECT_EQ(WithoutByteOrderMark("\xef\xbb"), "\xef\xbb");
}

TEST(Printable, Utf8StaysAsItIs) {
  const std::string text = "a\tz\n\xc3\xa9 \xe2\x82\xac \xf0\x9f\x90\x9f \xf4\x8f\xbf\xbf";
  EXPECT_EQ(Printable(text), text);
  EXPECT_EQ(FindNotUtf8(text), std::nullopt);
}

TEST(Printable, BytesThatAreNoCharactersAreEscaped) {
  EXPECT_EQ(Printable("na\xffme"), "na\\xffme");
  EXPECT_EQ(FindNotUtf8("na\xffme"), 2U);
  EXPECT_EQ(Printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable("\x1b[31m\x7f"), "\\x1b[31m\\x7f");
}

// What RFC 3629 rules out: a character cut off, forms that are too long, surrogates, and what is
// above U+10FFFF.
TEST(Printable, OnlyTheShortestFormOfARealCharacterIsUtf8) {
  for (const char* text :
       {"\xe2\x82", "\xc0\x80", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\x80", "\xf5\x80\x80\x80", "\xc3("}) {
    EXPECT_EQ(FindNotUtf8(text), 0U) << Printable(text);
  }
}

}  // namespace
}  // namespace poseidon
