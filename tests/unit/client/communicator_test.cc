#include "poseidon/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/net/host_address.h"
#include "core/program.h"
#include "core/random.h"
#include "core/steady_now.h"
#include "core/time.h"
#include "tests/free_endpoints.h"
#include "tests/unit/temporary_directory.h"
#include "transport/security/job_key.h"

namespace poseidon {
namespace {

using Floats = std::vector<float>;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

// For tests that do not wait for it to pass: slow machines and sanitizers.
constexpr Duration kPatience = std::chrono::seconds(60);

// Runs `body` as so many ranks, a thread each; what it throws fails the test.
void RunRanks(int ranks, const std::function<void(Communicator&)>& body, int lanes = 1,
              Duration deadline = kPatience) {
  const std::vector<std::string> endpoints = FreeEndpoints(ranks);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Communicator all(
            {.rank = rank, .endpoints = endpoints, .lanes = lanes, .deadline = deadline});
        body(all);
      } catch (const Error& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Integers small enough to be summed without rounding; the same on all ranks that ask for `rank`'s.
Floats FloatsOf(int rank, size_t size, uint64_t seed) {
  Random random(DeriveSeed(seed, rank));
  Floats floats(size);
  for (float& value : floats) value = static_cast<float>(random.Below(1000));
  return floats;
}

Floats SumOf(int ranks, size_t size, uint64_t seed) {
  Floats sum(size);
  for (int rank = 0; rank < ranks; ++rank) {
    const Floats floats = FloatsOf(rank, size, seed);
    for (size_t i = 0; i < size; ++i) sum[i] += floats[i];
  }
  return sum;
}

std::vector<CollectiveOptions::Dimension> Grid(const std::vector<int>& sizes) {
  std::vector<CollectiveOptions::Dimension> grid;
  for (const int size : sizes) grid.push_back({.size = size});
  return grid;
}

class CommunicatorTest : public testing::TestWithParam<int> {};

TEST_P(CommunicatorTest, SumsAnySizeByAnySchemeCallAfterCall) {
  const int ranks = GetParam();
  const int lanes = 1 + ranks % 2;
  RunRanks(
      ranks,
      [&](Communicator& all) {
        Random random(ranks);  // the same draws on all ranks
        for (int call = 0; call < 40; ++call) {
          const size_t sizes[] = {0, 1, random.Below(100), random.Below(300'000)};
          const size_t size = sizes[random.Below(4)];
          CollectiveOptions options;
          const CollectiveScheme schemes[] = {CollectiveScheme::kRing,
                                              CollectiveScheme::kHalvingDoubling,
                                              CollectiveScheme::kTorus};
          if (random.Chance(0.8)) options.scheme = schemes[random.Below(3)];
          if (options.scheme == CollectiveScheme::kTorus) options.grid = Grid({1, ranks});
          if (random.Chance(0.5)) options.chunk_bytes = 4096 + 1000 * random.Below(100);
          const uint64_t seed = random.Next();
          Floats floats = FloatsOf(all.rank(), size, seed);
          all.AllReduce(floats, options);
          ASSERT_EQ(floats, SumOf(ranks, size, seed)) << "call " << call << ", " << size;
          // The floats are the caller's again: nothing of this may reach another rank.
          std::fill(floats.begin(), floats.end(), -1.0F);
        }
      },
      lanes);
}

TEST_P(CommunicatorTest, GathersBlocksOfAnySize) {
  const int ranks = GetParam();
  RunRanks(ranks, [&](Communicator& all) {
    Random random(100 + ranks);
    for (int call = 0; call < 20; ++call) {
      std::vector<int64_t> counts(ranks);
      for (int64_t& count : counts) {
        count = static_cast<int64_t>(random.Below(random.Chance(0.3) ? 1 : 50'000));
      }
      const size_t size = std::accumulate(counts.begin(), counts.end(), int64_t{0});
      const Floats expected = FloatsOf(0, size, random.Next());
      Floats floats(size, -1);
      const auto begin = std::accumulate(counts.begin(), counts.begin() + all.rank(), int64_t{0});
      std::copy_n(expected.begin() + begin, counts[all.rank()], floats.begin() + begin);
      CollectiveOptions options;
      if (random.Chance(0.5)) {
        options.scheme =
            random.Chance(0.5) ? CollectiveScheme::kRing : CollectiveScheme::kHalvingDoubling;
      }
      if (random.Chance(0.5)) options.chunk_bytes = 10'000;
      all.AllGather(floats, counts, options);
      ASSERT_EQ(floats, expected) << "call " << call;
    }
    Floats one_each(ranks, -1);
    one_each[all.rank()] = static_cast<float>(all.rank());
    all.AllGather(one_each);
    for (int rank = 0; rank < ranks; ++rank) ASSERT_EQ(one_each[rank], rank);
  });
}

TEST_P(CommunicatorTest, RoundedSumsHaveTheSameBitsEverywhere) {
  const int ranks = GetParam();
  std::vector<Floats> results(ranks);
  RunRanks(ranks, [&](Communicator& all) {
    Random random(all.rank());
    Floats floats(10'001);
    for (float& value : floats) value = static_cast<float>(random.Gaussian());
    all.AllReduce(floats, {.codec = CollectiveCodec::kFp16});
    results[all.rank()] = floats;
  });
  EXPECT_THAT(results, testing::Each(results[0]));
}

TEST_P(CommunicatorTest, NobodyLeavesABarrierBeforeAllHaveCome) {
  const int ranks = GetParam();
  std::atomic<int> came{0};
  RunRanks(ranks, [&](Communicator& all) {
    for (int round = 1; round <= 20; ++round) {
      ++came;
      all.Barrier();
      ASSERT_GE(came.load(), round * ranks);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, CommunicatorTest, testing::Values(1, 2, 3, 4, 5));

// What `call` throws, or "".
template <typename Expected>
std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
    return "";
  } catch (const Expected& error) {
    return error.what();
  }
}

constexpr Duration kShort = std::chrono::seconds(2);

TEST(CommunicatorFailureTest, ARankThatDoesNotCallIsNamedByAllOthers) {
  std::vector<std::string> errors(4);
  std::atomic<int> failed{0};
  RunRanks(
      4,
      [&](Communicator& all) {
        Floats floats(1000);
        all.AllReduce(floats);
        if (all.rank() == 2) {
          // Its program does something else; its lanes still answer.
          while (failed < 3) std::this_thread::sleep_for(std::chrono::milliseconds(10));
          return;
        }
        errors[all.rank()] = ErrorOf<DeadlineExceeded>([&] { all.AllReduce(floats); });
        ++failed;
        EXPECT_EQ(ErrorOf<DeadlineExceeded>([&] { all.Barrier(); }), errors[all.rank()]);
      },
      1, kShort);
  for (const int rank : {0, 1, 3}) {
    EXPECT_THAT(errors[rank], HasSubstr("rank 2 (127.0.0.1:")) << rank;
    EXPECT_THAT(errors[rank], HasSubstr("all-reduce of 1000 floats"));
    // Who gave up first may be named, too, but not as missing.
    for (const int other : {0, 1, 3}) {
      EXPECT_THAT(errors[rank], Not(testing::ContainsRegex("rank " + std::to_string(other) +
                                                           " [^:]*:[0-9]*\\) did not take part")));
    }
  }
}

// It has received all, and what it sends is taken by nobody; its deadline is for ever.
TEST(CommunicatorFailureTest, ACallThatStillSendsCanBeInterrupted) {
  const std::vector<std::string> endpoints = FreeEndpoints(2);
  const pid_t stopped = fork();
  if (stopped == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    Communicator all({.rank = 1, .endpoints = endpoints, .deadline = kPatience});
    all.Barrier();
    while (true) pause();
  }
  Floats floats(25'000'000);  // more than the sockets of both ends hold
  std::atomic<bool> interrupted{false};
  Communicator all(
      {.rank = 0, .endpoints = endpoints, .deadline = Duration::max(), .interrupted = [&] {
         return interrupted.load();
       }});
  all.Barrier();  // it has been heard
  kill(stopped, SIGSTOP);
  std::thread interrupts([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    interrupted = true;
  });
  const Time begin = SteadyNow();
  const int64_t size = static_cast<int64_t>(floats.size());
  EXPECT_EQ(ErrorOf<Error>([&] { all.AllGather(floats, {size, 0}); }), Interrupted().what());
  EXPECT_LT(SteadyNow() - begin, kPatience / 2);
  interrupts.join();
  kill(stopped, SIGKILL);
  waitpid(stopped, nullptr, 0);
}

// The others hear of it, and nothing of this rank's refers to the floats any more. The last rank is
// in no call, so that the others can't be done with theirs.
TEST(CommunicatorFailureTest, WhatInterruptedThrowsEndsTheCall) {
  const std::vector<std::string> endpoints = FreeEndpoints(3);
  std::atomic<int> met{0};  // who gives up before does so in the barrier of the others
  std::atomic<bool> heard{false};
  std::vector<std::thread> others;
  for (const int rank : {1, 2}) {
    others.emplace_back([&, rank] {
      Communicator all({.rank = rank, .endpoints = endpoints, .deadline = kPatience});
      all.Barrier();
      ++met;
      while (rank == 2 && !heard) std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (rank == 2) return;
      Floats floats(1000);
      EXPECT_THAT(ErrorOf<Error>([&] { all.AllReduce(floats); }),
                  AllOf(HasSubstr("rank 0"), HasSubstr("gave up: the program's own")));
      heard = true;
    });
  }
  bool throws = false;
  Communicator all({.rank = 0, .endpoints = endpoints, .deadline = kPatience, .interrupted = [&] {
                      if (throws) throw std::runtime_error("the program's own");
                      return false;
                    }});
  all.Barrier();
  while (met < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  throws = true;
  const Time begin = SteadyNow();
  auto floats = std::make_unique<Floats>(1000);
  EXPECT_THROW(all.AllReduce(*floats), std::runtime_error);
  floats.reset();
  EXPECT_EQ(ErrorOf<Error>([&] { all.Barrier(); }), "the program's own");
  for (std::thread& other : others) other.join();
  EXPECT_LT(SteadyNow() - begin, kPatience / 2);
}

// Its frames would gather at the others.
TEST(CommunicatorTest, NobodyRunsAheadOfARankThatHasNothingToGive) {
  constexpr int kRanks = 3;
  constexpr int kCalls = 10;
  std::array<std::atomic<int>, kRanks> entered{};
  RunRanks(kRanks, [&](Communicator& all) {
    Random random(1);
    for (int call = 1; call <= kCalls; ++call) {
      std::vector<int64_t> counts(kRanks);
      for (int64_t& count : counts) count = static_cast<int64_t>(random.Below(3)) * 1000;
      Floats floats(std::accumulate(counts.begin(), counts.end(), int64_t{0}));
      if (call % kRanks == all.rank()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      }
      entered[all.rank()] = call;
      all.AllGather(floats, counts);
      for (const std::atomic<int>& other : entered) EXPECT_GE(other, call);
    }
  });
}

TEST(CommunicatorFailureTest, ARankThatNeverStartsIsNamed) {
  const std::vector<std::string> endpoints = FreeEndpoints(3);
  std::vector<std::thread> threads;
  for (const int rank : {0, 1}) {
    threads.emplace_back([&, rank] {
      const std::string error = ErrorOf<DeadlineExceeded>(
          [&] { Communicator({.rank = rank, .endpoints = endpoints, .deadline = kShort}); });
      // Who gives up first may be named, too, but not as missing.
      EXPECT_THAT(error, HasSubstr("no word of rank 2 (" + endpoints[2] + ") for 2s: "));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Each rank makes its own call; every one must end in an error that names a rank of the other kind.
void ExpectProtocolErrors(const std::function<void(Communicator&)>& call,
                          const std::string& expected) {
  std::vector<std::string> errors(3);
  RunRanks(
      3,
      [&](Communicator& all) { errors[all.rank()] = ErrorOf<ProtocolError>([&] { call(all); }); },
      1, std::chrono::seconds(20));
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr(expected));
    EXPECT_THAT(error, HasSubstr("the same calls in the same order"));
  }
}

TEST(CommunicatorFailureTest, OtherSizesAreAnError) {
  for (const auto& [mine, theirs] :
       std::vector<std::pair<int, int>>{{100, 101}, {100'000, 1}, {2'000'000, 100}, {0, 100}}) {
    ExpectProtocolErrors(
        [mine = mine, theirs = theirs](Communicator& all) {
          Floats floats(all.rank() == 1 ? mine : theirs);
          all.AllReduce(floats);
        },
        "all-reduce of " + std::to_string(mine) + " floats");
  }
}

TEST(CommunicatorFailureTest, OtherCallsAreAnError) {
  ExpectProtocolErrors(
      [](Communicator& all) {
        Floats floats(300);
        if (all.rank() == 1) {
          all.AllReduce(floats, {.scheme = CollectiveScheme::kRing});
        } else {
          all.AllReduce(floats, {.scheme = CollectiveScheme::kHalvingDoubling});
        }
      },
      "(ring, fp32)");
  ExpectProtocolErrors(
      [](Communicator& all) {
        Floats floats(3000);
        all.AllReduce(floats, {.chunk_bytes = all.rank() == 1 ? 1024 : 2048});
      },
      "with another grid, other chunks or other blocks");
  ExpectProtocolErrors(
      [](Communicator& all) {
        Floats floats(300);
        if (all.rank() == 1) {
          all.Barrier();
        } else {
          all.AllGather(floats);
        }
      },
      "barrier");
}

TEST(CommunicatorFailureTest, WhatCantWorkIsRefusedAndHarmsNothing) {
  RunRanks(2, [](Communicator& all) {
    Floats floats = {1, 2, 3};
    const auto refused = [&](const CollectiveOptions& options) {
      return ErrorOf<ConfigError>([&] { all.AllReduce(floats, options); });
    };
    EXPECT_THAT(refused({.scheme = static_cast<CollectiveScheme>(7)}), HasSubstr("scheme 7"));
    EXPECT_THAT(refused({.codec = static_cast<CollectiveCodec>(7)}), HasSubstr("codec 7"));
    EXPECT_THAT(refused({.grid = {{.size = 2, .scheme = CollectiveScheme::kTorus}}}),
                HasSubstr("no torus itself"));
    EXPECT_THAT(refused({.grid = Grid({2, 2})}), HasSubstr("number of ranks, 2"));
    EXPECT_THAT(refused({.scheme = CollectiveScheme::kTorus}), HasSubstr("grid"));
    EXPECT_THAT(refused({.chunk_bytes = 1}), HasSubstr("chunk_bytes"));
    EXPECT_THAT(ErrorOf<ConfigError>([&] { all.AllGather(floats, {1, 1}); }), HasSubstr("the 3"));
    EXPECT_THAT(ErrorOf<ConfigError>([&] { all.AllGather(floats, {3}); }), HasSubstr("2 ranks"));
    all.AllReduce(floats);
    EXPECT_THAT(floats, testing::ElementsAre(2, 4, 6));
  });
}

// Ranks 0 and 1 with the key files of their names, "" for none; what each says, "" if their sum is
// right.
std::vector<std::string> SumWithKeys(const std::vector<std::string>& key_files, Duration deadline) {
  const std::vector<std::string> endpoints = FreeEndpoints(2);
  std::vector<std::string> said(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        Communicator all({.rank = rank,
                          .endpoints = endpoints,
                          .deadline = deadline,
                          .key_file = key_files[rank]});
        Floats floats = FloatsOf(rank, 5000, 1);
        all.AllReduce(floats);
        all.Barrier();
        if (floats != SumOf(2, 5000, 1)) said[rank] = "a wrong sum";
      } catch (const Error& error) {
        said[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return said;
}

TEST(CommunicatorTest, RanksAreReachedByIpv6) {
  if (!IsOwnAddress("::1")) GTEST_SKIP() << "this machine has no IPv6";
  std::vector<std::string> endpoints = FreeEndpoints(2);
  for (std::string& endpoint : endpoints) endpoint.replace(0, endpoint.rfind(':'), "[::1]");
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      Communicator all({.rank = rank, .endpoints = endpoints, .deadline = kPatience});
      Floats floats = FloatsOf(rank, 5000, 1);
      all.AllReduce(floats);
      EXPECT_EQ(floats, SumOf(2, 5000, 1));
      all.Barrier();
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(CommunicatorTest, OnlyWhoHasTheKeyIsARank) {
  const TemporaryDirectory directory;
  const std::string ours = directory.path() + "/ours.key";
  const std::string other = directory.path() + "/other.key";
  JobKey::Make().Write(ours);
  JobKey::Make().Write(other);
  EXPECT_THAT(SumWithKeys({ours, ours}, kPatience), testing::Each(""));
  EXPECT_THAT(SumWithKeys({ours, other}, kShort), testing::Each(HasSubstr("the same key")));
  EXPECT_THAT(SumWithKeys({ours, ""}, kShort), testing::Each(HasSubstr("no word of rank")));
}

TEST(CommunicatorFailureTest, OptionsThatMakeNoSenseAreRefused) {
  const auto refused = [](const CommunicatorOptions& options) {
    return ErrorOf<ConfigError>([&] { Communicator communicator(options); });
  };
  EXPECT_THAT(refused({.rank = 2, .endpoints = {"a:1", "b:2"}}), HasSubstr("rank 2"));
  EXPECT_THAT(refused({.rank = 0, .endpoints = {}}), HasSubstr("0 endpoints"));
  EXPECT_THAT(refused({.rank = 0, .endpoints = {"nowhere"}}), HasSubstr("'nowhere'"));
  EXPECT_THAT(refused({.rank = 0, .endpoints = {"a:70000"}}), HasSubstr("host:port"));
  EXPECT_THAT(refused({.endpoints = FreeEndpoints(1), .lanes = 0}), HasSubstr("0 lanes"));
  EXPECT_THAT(refused({.endpoints = FreeEndpoints(1), .deadline = Duration(0)}),
              HasSubstr("deadline"));
  EXPECT_THAT(refused({.endpoints = FreeEndpoints(1), .key_file = "/nowhere/job.key"}),
              HasSubstr("/nowhere/job.key"));
  EXPECT_THAT(refused({.endpoints = FreeEndpoints(1), .allow = {"10.0.0.0/33"}}),
              HasSubstr("10.0.0.0/33"));
  // Two ranks of different jobs.
  const std::vector<std::string> endpoints = FreeEndpoints(2);
  const auto start = [&](int rank, int lanes) {
    return refused({.rank = rank, .endpoints = endpoints, .lanes = lanes});
  };
  std::thread other([&] { EXPECT_THAT(start(1, 2), HasSubstr("rank 0")); });
  EXPECT_THAT(start(0, 1), HasSubstr("rank 1"));
  other.join();
}

// It has none of the threads behind it.
TEST(CommunicatorTest, AForkedChildCanNeitherUseNorEndIt) {
  auto all =
      std::make_unique<Communicator>(CommunicatorOptions{.rank = 0, .endpoints = FreeEndpoints(1)});
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a wait for such a thread would never end
    std::string said;
    try {
      all->Barrier();
    } catch (const Error& error) {
      said = error.what();
    }
    all.reset();
    _exit(said.find("of which this one is a fork") == std::string::npos ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  all->Barrier();
}

}  // namespace
}  // namespace poseidon
