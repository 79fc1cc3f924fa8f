#include "core/text/nearest.h"

#include <gtest/gtest.h>

namespace poseidon {
namespace {

const std::vector<std::string> kNames = {"workers", "servers", "out"};

TEST(Nearest, FindsWhatWasMeant) {
  EXPECT_EQ(Nearest("workers", kNames), "workers");
  EXPECT_EQ(Nearest("worker", kNames), "workers");
  EXPECT_EQ(Nearest("wrokers", kNames), "workers");
  EXPECT_EQ(Nearest("severs", kNames), "servers");
  EXPECT_EQ(Nearest("ouut", kNames), "out");
  EXPECT_EQ(Nearest("otu", kNames), "out");
}

TEST(Nearest, TakesTheFirstOfEquals) { EXPECT_EQ(Nearest("ab", {"aa", "bb"}), "aa"); }

TEST(Nearest, GivesUpWhereMoreThanHalfIsWrong) {
  EXPECT_EQ(Nearest("xyz", kNames), std::nullopt);
  EXPECT_EQ(Nearest("", kNames), std::nullopt);
  EXPECT_EQ(Nearest("workers", {}), std::nullopt);
}

}  // namespace
}  // namespace poseidon
