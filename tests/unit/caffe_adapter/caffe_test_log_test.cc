#include <gtest/gtest.h>

#include "caffe_adapter/patch/test_log.h"

namespace poseidon {
namespace {

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

}  // namespace
}  // namespace poseidon
