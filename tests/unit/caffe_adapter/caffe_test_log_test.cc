#include <gtest/gtest.h>

#include <clocale>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string>

#include "caffe_adapter/patch/test_log.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

// A program's numbers have a comma while it lives, if this machine can make such a locale.
class DecimalComma {
 public:
  DecimalComma() {
    const std::string make = "localedef -i de_DE -f UTF-8 " + directory_.Path("comma") + " 2>&1";
    if (std::system(make.c_str()) != 0) return;
    setenv("LOCPATH", directory_.path().c_str(), 1);
    made_ = std::setlocale(LC_NUMERIC, "comma") != nullptr;
    unsetenv("LOCPATH");
  }
  ~DecimalComma() { std::setlocale(LC_NUMERIC, "C"); }
  DecimalComma(const DecimalComma&) = delete;
  DecimalComma& operator=(const DecimalComma&) = delete;

  bool made() const { return made_; }

 private:
  const TemporaryDirectory directory_;
  bool made_ = false;
};

float LossOf(const std::string& number) {
  CaffeTestLog log("");
  log.Read("Iteration 0, Testing net (#0)");
  log.Read("    Test net output #0: loss = 2.3 (* 1 = " + number + " loss)");
  return log.Take().value().test_loss();
}

TEST(CaffeTestLogTest, FindsTheResultsOfTheFirstTestNet) {
  CaffeTestLog log("accuracy");
  EXPECT_FALSE(log.Take());
  for (const char* message :
       {"Iteration 500, loss = 0.1", "Iteration 500, Testing net (#0)", "Ignoring source layer a",
        "Test loss: 7", "    Test net output #0: accuracy = 0.9713",
        "    Test net output #1: top-5 = 1", "    Test net output #2: loss = 0.5 (* 1 = 0.5 loss)",
        "    Test net output #3: aux = 2 (* 0.25 = 0.5 loss)", "    Test net output #4: class = 3",
        "Iteration 500, Testing net (#1)", "    Test net output #0: accuracy = 0.1"}) {
    log.Read(message);
  }
  const std::optional<wire::Progress> result = log.Take();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->iteration(), 500);
  EXPECT_FLOAT_EQ(result->test_accuracy(), 0.9713F);
  EXPECT_FLOAT_EQ(result->test_loss(), 1);
  EXPECT_FALSE(log.Take());
}

TEST(CaffeTestLogTest, ALaterPhaseTakesThePlaceOfAnEarlierOne) {
  CaffeTestLog log("");
  log.Read("Iteration 0, Testing net (#0)");
  log.Read("    Test net output #0: loss = 2.3 (* 1 = 2.3 loss)");
  log.Read("Iteration 10, Testing net (#0)");
  log.Read("    Test net output #0: loss = 1.5 (* 1 = 1.5 loss)");
  const std::optional<wire::Progress> result = log.Take();
  ASSERT_TRUE(result);
  EXPECT_EQ(result->iteration(), 10);
  EXPECT_FLOAT_EQ(result->test_loss(), 1.5F);
  EXPECT_FALSE(result->has_test_accuracy());
}

TEST(CaffeTestLogTest, NumbersAreReadAsTheyAreWritten) {
  EXPECT_FLOAT_EQ(LossOf("1.5e-05"), 1.5e-5F);
  EXPECT_FLOAT_EQ(LossOf("-1.5e+10"), -1.5e10F);
  EXPECT_EQ(LossOf("1e-300"), 0);
  EXPECT_EQ(LossOf("1e+300"), std::numeric_limits<float>::infinity());
  EXPECT_EQ(LossOf("-inf"), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(LossOf("nan")));
  EXPECT_TRUE(std::isnan(LossOf("-nan")));
}

// matplotlib and Qt take the user's locale for the whole program.
TEST(CaffeTestLogTest, NumbersAreReadInAProgramWhoseOwnHaveAComma) {
  const DecimalComma comma;
  if (!comma.made()) GTEST_SKIP() << "localedef makes no locale de_DE; Debian has it in locales";
  ASSERT_FLOAT_EQ(std::strtof("0,5", nullptr), 0.5F);
  EXPECT_FLOAT_EQ(LossOf("0.5"), 0.5F);
  CaffeTestLog log("accuracy");
  log.Read("Iteration 500, Testing net (#0)");
  log.Read("    Test net output #0: accuracy = 0.9713");
  EXPECT_FLOAT_EQ(log.Take().value().test_accuracy(), 0.9713F);
}

}  // namespace
}  // namespace poseidon
