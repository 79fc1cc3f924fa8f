#include "core/units.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "core/error.h"

namespace poseidon {
namespace {

using namespace std::chrono_literals;

TEST(Units, ParsesBytes) {
  EXPECT_EQ(ParseBytes("0B"), 0);
  EXPECT_EQ(ParseBytes("17B"), 17);
  EXPECT_EQ(ParseBytes("2MB"), 2'000'000);
  EXPECT_EQ(ParseBytes("2 MiB"), 2'097'152);
  EXPECT_EQ(ParseBytes("1.5KiB"), 1536);
  EXPECT_EQ(ParseBytes("0.000001MB"), 1);
  EXPECT_EQ(ParseBytes("8TiB"), int64_t{8} << 40);
}

TEST(Units, ParsesBitRatesAndDurations) {
  EXPECT_EQ(ParseBitRate("10Gbps"), 10'000'000'000);
  EXPECT_EQ(ParseBitRate("9.4 Gbps"), 9'400'000'000);
  EXPECT_EQ(ParseBitRate("56Kbps"), 56'000);
  EXPECT_EQ(ParseDuration("50us"), 50us);
  EXPECT_EQ(ParseDuration("0.25ms"), 250us);
  EXPECT_EQ(ParseDuration("1.5h"), 90min);
  EXPECT_EQ(ParseDuration("10s"), 10s);
}

TEST(Units, FormatsTheShortestExactText) {
  EXPECT_EQ(FormatBytes(0), "0B");
  EXPECT_EQ(FormatBytes(2'000'000), "2MB");
  EXPECT_EQ(FormatBytes(2'097'152), "2MiB");
  EXPECT_EQ(FormatBytes(2'097'153), "2097153B");
  EXPECT_EQ(FormatBytes(1'005'000), "1005KB");
  EXPECT_EQ(FormatBitRate(9'400'000'000), "9.4Gbps");
  EXPECT_EQ(FormatDuration(0ns), "0s");
  EXPECT_EQ(FormatDuration(1500ms), "1.5s");
  EXPECT_EQ(FormatDuration(1050ms), "1.05s");
  EXPECT_EQ(FormatDuration(90min), "1.5h");
  EXPECT_EQ(FormatDuration(-3ms), "-3ms");
}

TEST(Units, ParsingWhatWasFormattedGivesTheSameAmount) {
  const int64_t max = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(ParseBytes(FormatBytes(max)), max);
  std::mt19937_64 random(6);
  for (int i = 0; i < 20000; ++i) {
    // Of all magnitudes, round in binary, round in decimal, or not round.
    int64_t amount = static_cast<int64_t>(random() >> 1U) >> (random() % 63);
    if (i % 3 == 1) amount = amount >> 20 << 20;
    if (i % 3 == 2) amount = amount / 1'000'000 * 1'000'000;
    ASSERT_EQ(ParseBytes(FormatBytes(amount)), amount);
    ASSERT_EQ(ParseBitRate(FormatBitRate(amount)), amount);
    ASSERT_EQ(ParseDuration(FormatDuration(Duration(amount))).count(), amount);
  }
}

template <typename Parse>
std::string Refusal(Parse parse, std::string_view text) {
  try {
    parse(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(Units, SaysWhatIsWrongAndWhatTheUnitsAre) {
  EXPECT_EQ(Refusal(ParseBitRate, "10GBps"),
            "\"10GBps\" is not a rate in bits per second such as 10Gbps: unknown unit \"GBps\" "
            "(units: bps Kbps Mbps Gbps Tbps)");
  EXPECT_EQ(Refusal(ParseDuration, "50"),
            "\"50\" is not a duration such as 50us: the unit is missing (units: ns us ms s min h)");
  EXPECT_EQ(Refusal(ParseDuration, "0.5ns"),
            "\"0.5ns\" is not a duration such as 50us: it is not a whole number of ns (units: ns "
            "us ms s min h)");
  EXPECT_EQ(Refusal(ParseBytes, "9000000TiB"),
            "\"9000000TiB\" is not a size in bytes such as 2MB: it is too large (units: B KB KiB "
            "MB MiB GB GiB TB TiB)");
}

TEST(Units, RefusesNonsense) {
  const std::string many(40, '9');
  for (const std::string& text :
       {std::string(), std::string(" "), std::string("MB"), std::string("-2MB"),
        std::string("+2MB"), std::string("1e6B"), std::string(".5KB"), std::string("5.KB"),
        std::string("1.2.3KB"), std::string("2MB "), std::string(" 2MB"), std::string("2mb"),
        std::string("0x10B"), std::string("2MB\0", 4), std::string("2\tMB"), many + "B"}) {
    EXPECT_THROW(ParseBytes(text), ConfigError) << '"' << text << '"';
  }
}

}  // namespace
}  // namespace poseidon
