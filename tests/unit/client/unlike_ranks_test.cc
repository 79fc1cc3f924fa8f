// Ranks of a Communicator that were started with other endpoints than the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "core/steady_now.h"
#include "core/time.h"
#include "poseidon/communicator.h"
#include "poseidon/error.h"
#include "tests/free_endpoints.h"
#include "tests/unit/log_lines.h"
#include "tests/unit/temporary_directory.h"

namespace poseidon {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Nothing waits for it to pass.
constexpr Duration kLongEnough = std::chrono::seconds(60);

void ExpectRefusalOfRank2(const std::vector<std::string>& three) {
  EXPECT_THAT(MessageOf<ConfigError>(
                  [&] { Communicator({.rank = 2, .endpoints = three, .deadline = kLongEnough}); }),
              AllOf(HasSubstr("was started with another number of ranks"), HasSubstr("3 ranks")));
}

// They would go on with the sums of two of three.
TEST(UnlikeRanksTest, OneThatWasStartedWithMoreEndsThoseWithFewer) {
  const std::vector<std::string> three = FreeEndpoints(3);
  std::atomic<int> met{0};
  std::atomic<bool> refused{false};
  std::vector<std::thread> threads;
  for (const int rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      Communicator all({.rank = rank, .endpoints = {three[0], three[1]}, .deadline = kLongEnough});
      ++met;
      while (!refused) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      EXPECT_THAT(MessageOf<ConfigError>([&] { all.Barrier(); }),
                  HasSubstr("rank 2 was started with another number of ranks or lanes than this "
                            "one, which has 2 ranks"));
    });
  }
  while (met < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ExpectRefusalOfRank2(three);
  refused = true;
  for (std::thread& thread : threads) thread.join();
}

// As a process of another program may, in the midst of long work.
TEST(UnlikeRanksTest, OneThatWasStartedWithMoreAfterTheFirstCallEndsItselfOnly) {
  const LogLines log;
  const auto warnings = [&log] {
    return std::ranges::count_if(log.lines(), [](const std::string& line) {
      return line.starts_with("rank 2 was started with another number of ranks or lanes than this");
    });
  };
  const std::vector<std::string> three = FreeEndpoints(3);
  std::atomic<int> called{0};
  std::atomic<bool> refused{false};
  std::vector<std::thread> threads;
  for (const int rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      Communicator all({.rank = rank, .endpoints = {three[0], three[1]}, .deadline = kLongEnough});
      all.Barrier();
      ++called;
      const Time end = SteadyNow() + kLongEnough;
      const auto is_over = [&] { return (refused && warnings() > 0) || SteadyNow() > end; };
      std::vector<float> over = {0};
      EXPECT_EQ(MessageOf<Error>([&] {
                  while (over[0] < 2) {
                    over[0] = is_over() ? 1 : 0;
                    all.AllReduce(over);
                  }
                }),
                "");
    });
  }
  while (called < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  for (int start = 0; start < 2; ++start) ExpectRefusalOfRank2(three);
  refused = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(warnings(), AllOf(testing::Ge(1), testing::Le(2))) << "one of a rank at most";
}

// What scheme is best depends on whether they are on one machine, which a text does not tell.
TEST(UnlikeRanksTest, EndpointsMayBeSpelledDifferently) {
  constexpr int kRanks = 4;
  constexpr int kFloats = 100'000;  // for which the schemes differ
  const std::vector<std::string> endpoints = FreeEndpoints(kRanks);
  for (const int unlike : {0, 1}) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        std::vector<std::string> own = endpoints;
        if (rank == unlike) own[2].replace(0, own[2].find(':'), "localhost");
        Communicator all({.rank = rank, .endpoints = own, .deadline = kLongEnough});
        std::vector<float> floats(kFloats, 1);
        EXPECT_EQ(MessageOf<Error>([&] { all.AllReduce(floats); }), "");
        EXPECT_EQ(floats.back(), kRanks);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

// The first call of all, too, is of the process that is rank 0 then.
TEST(UnlikeRanksTest, Rank0MayBeStartedAgainWithOtherSpellings) {
  constexpr int kRanks = 4;
  const std::vector<std::string> endpoints = FreeEndpoints(kRanks);
  std::atomic<int> met{0};
  std::atomic<bool> again{false};
  const auto add_up = [&](Communicator& all) {
    std::vector<float> floats(100'000, 1);  // for which the schemes differ
    EXPECT_EQ(MessageOf<Error>([&] { all.AllReduce(floats); }), "");
    EXPECT_EQ(floats.back(), kRanks);
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator all({.rank = rank, .endpoints = endpoints, .deadline = kLongEnough});
      ++met;
      while (!again) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      add_up(all);
    });
  }
  {
    Communicator first({.rank = 0, .endpoints = endpoints, .deadline = std::chrono::seconds(2)});
    while (met < kRanks - 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::vector<float> others(100'000, 7);  // of the process that is no more
    EXPECT_THROW(first.AllReduce(others), DeadlineExceeded);
  }
  std::vector<std::string> own = endpoints;
  own[2].replace(0, own[2].find(':'), "localhost");
  Communicator all({.rank = 0, .endpoints = own, .deadline = kLongEnough});
  again = true;
  add_up(all);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace poseidon
