#include "core/process/input_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string_view>

namespace poseidon {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class InputLinesTest : public testing::Test {
 protected:
  InputLinesTest() { EXPECT_EQ(pipe(ends_), 0); }
  ~InputLinesTest() override {
    close(ends_[0]);
    CloseWriter();
  }
  void Write(std::string_view text) {
    EXPECT_EQ(write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void CloseWriter() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }
  int ends_[2] = {-1, -1};
};

TEST_F(InputLinesTest, ALineIsGivenWhenItsEndHasCome) {
  InputLines lines(ends_[0]);
  EXPECT_THAT(lines.Take(), IsEmpty());  // and does not wait
  Write("one\n\ntw");
  EXPECT_THAT(lines.Take(), ElementsAre("one", ""));
  EXPECT_THAT(lines.Take(), IsEmpty());
  Write("o\n" + std::string(10000, 'x') + "\n");
  EXPECT_THAT(lines.Take(), ElementsAre("two", std::string(10000, 'x')));
  EXPECT_FALSE(lines.ended());
}

TEST_F(InputLinesTest, WhatCameBeforeTheEndIsGiven) {
  InputLines lines(ends_[0]);
  Write("last\nhalf");
  CloseWriter();
  EXPECT_THAT(lines.Take(), ElementsAre("last"));
  EXPECT_TRUE(lines.ended());
  EXPECT_THAT(lines.Take(), IsEmpty());
}

}  // namespace
}  // namespace poseidon
