#include "transport/mailbox.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace poseidon {
namespace {

Envelope Numbered(int64_t number, uint32_t sender = 0) {
  Envelope envelope;
  envelope.iteration = number;
  envelope.bucket = sender;
  return envelope;
}

TEST(Mailbox, GivesNothingWhenNothingComes) {
  Mailbox mailbox;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(mailbox.Take(std::chrono::milliseconds(20)));
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
  EXPECT_FALSE(mailbox.Take(Duration(0)));
}

TEST(Mailbox, GivesWhatIsThereWithoutWaiting) {
  Mailbox mailbox;
  mailbox.Put(Numbered(7));
  const auto taken = mailbox.Take(Duration(0));
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->iteration, 7);
}

TEST(Mailbox, KeepsEachSendersOrder) {
  constexpr int kSenders = 4;
  constexpr int64_t kEach = 2000;
  Mailbox mailbox;
  std::vector<std::thread> senders;
  for (int sender = 0; sender < kSenders; ++sender) {
    senders.emplace_back([&mailbox, sender] {
      for (int64_t i = 0; i < kEach; ++i) mailbox.Put(Numbered(i, sender));
    });
  }
  std::vector<int64_t> next(kSenders, 0);
  for (int i = 0; i < kSenders * kEach; ++i) {
    const auto taken = mailbox.Take(std::chrono::seconds(30));
    ASSERT_TRUE(taken);
    EXPECT_EQ(taken->iteration, next[taken->bucket]++);
  }
  for (std::thread& sender : senders) sender.join();
  EXPECT_FALSE(mailbox.Take(Duration(0)));
}

}  // namespace
}  // namespace poseidon
