#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/schedule.h"
#include "collectives/steps.h"
#include "collectives/traffic.h"
#include "core/message_limit.h"
#include "core/random.h"

namespace poseidon {
namespace {

using Kind = Operation::Kind;
using Floats = std::vector<float>;

// Two sums of the same floats in different orders differ by no more than this share of the sum of
// magnitudes: P - 1 roundings of 2^-24 each, P at most 16.
constexpr double kRounding = 16 * 0x1p-24;

// Carries out all workers' schedules on real floats; messages take their time, in an order that the
// seed decides. Their floats are read when they arrive: schedules promise that floats can be sent
// without a copy.
class Interpreter {
 public:
  Interpreter(std::vector<Schedule> schedules, std::vector<Floats> floats, uint64_t seed)
      : schedules_(std::move(schedules)),
        floats_(std::move(floats)),
        next_(schedules_.size()),
        random_(seed) {}

  // What each worker has at the end; fails the test if one waits for ever or a message is left.
  std::vector<Floats> Run() {
    for (size_t rank = 0; rank < schedules_.size(); ++rank) Advance(static_cast<int>(rank));
    while (!under_way_.empty()) {
      std::swap(under_way_[random_.Below(under_way_.size())], under_way_.back());
      const Message message = under_way_.back();
      under_way_.pop_back();
      const auto key = std::tuple(message.from, message.to, message.step);
      const auto begin = floats_[message.from].begin() + message.range.offset;
      Floats floats(begin, begin + message.range.size);
      EXPECT_TRUE(arrived_.emplace(key, std::move(floats)).second) << "two messages of one step";
      Advance(message.to);
    }
    EXPECT_THAT(arrived_, testing::IsEmpty()) << "messages that nobody wanted";
    for (size_t rank = 0; rank < schedules_.size(); ++rank) {
      EXPECT_EQ(next_[rank], schedules_[rank].size()) << "worker " << rank << " waits for ever";
    }
    return floats_;
  }

 private:
  struct Message {
    int from;
    int to;
    int step;
    Range range;
  };

  void Advance(int rank) {
    Floats& mine = floats_[rank];
    for (; next_[rank] < schedules_[rank].size(); ++next_[rank]) {
      const Operation& operation = schedules_[rank][next_[rank]];
      const Range range = operation.range;
      EXPECT_GT(range.size, 0);
      const auto begin = mine.begin() + range.offset;
      if (operation.kind == Kind::kSend) {
        EXPECT_NE(operation.peer, rank);
        under_way_.push_back({rank, operation.peer, operation.step, range});
      } else if (operation.kind != Kind::kRound) {
        const auto message = arrived_.find({operation.peer, rank, operation.step});
        if (message == arrived_.end()) return;
        const Floats& theirs = message->second;
        ASSERT_EQ(theirs.size(), static_cast<size_t>(range.size));
        for (size_t i = 0; i < theirs.size(); ++i) {
          begin[i] = operation.kind == Kind::kAdd ? begin[i] + theirs[i] : theirs[i];
        }
        arrived_.erase(message);
      }
    }
  }

  const std::vector<Schedule> schedules_;
  std::vector<Floats> floats_;
  std::vector<size_t> next_;
  std::vector<Message> under_way_;
  std::map<std::tuple<int, int, int>, Floats> arrived_;
  Random random_;
};

Plan Grid(const std::vector<std::pair<int, Scheme>>& dimensions) {
  Plan plan;
  for (const auto& [size, algorithm] : dimensions) {
    GridDimension& dimension = *plan.add_grid();
    dimension.set_size(size);
    dimension.set_algorithm(algorithm);
  }
  return plan;
}

struct Algorithm {
  std::string name;
  Scheme scheme;
  Plan grid;
};

// Every way to all-reduce among so many workers that a plan may choose.
std::vector<Algorithm> Algorithms(int workers) {
  std::vector<Algorithm> all = {{"ring", RING, {}}, {"halving-doubling", HALVING_DOUBLING, {}}};
  for (int x = 1; x <= workers; ++x) {
    if (workers % x != 0) continue;
    for (const Scheme first : {RING, HALVING_DOUBLING}) {
      for (const Scheme second : {RING, HALVING_DOUBLING}) {
        all.push_back({"torus " + std::to_string(x) + "x" + std::to_string(workers / x), TORUS,
                       Grid({{x, first}, {workers / x, second}})});
      }
    }
  }
  if (workers == 12) all.push_back({"2x3x2", TORUS, Grid({{2, RING}, {3, RING}, {2, RING}})});
  if (workers == 16) {
    all.push_back({"2x2x4", TORUS, Grid({{2, RING}, {2, HALVING_DOUBLING}, {4, RING}})});
  }
  return all;
}

std::vector<Schedule> AllReduceSchedules(const Algorithm& algorithm, int chunk, Range range,
                                         int workers) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < workers; ++rank) {
    schedules.push_back(
        AllReduceSchedule(algorithm.scheme, algorithm.grid, chunk, range, rank, workers));
  }
  return schedules;
}

std::vector<Floats> RandomFloats(size_t size, int workers, Random& random) {
  std::vector<Floats> floats(workers, Floats(size));
  for (Floats& mine : floats) {
    for (float& value : mine) value = static_cast<float>(random.Gaussian());
  }
  return floats;
}

constexpr int kWorkers[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16};

// 0, 1, fewer floats than workers, primes, powers of two, and whatever comes.
std::vector<int64_t> Sizes(Random& random) {
  return {0, 1, 2, 7, 64, 97, 1009, static_cast<int64_t>(random.Below(500))};
}

class AllReduceTest : public testing::TestWithParam<int> {};

void ExpectSum(const std::vector<Floats>& before, const std::vector<Floats>& after, Range range) {
  const auto untouched = [&](int64_t i) {
    return i < range.offset || i >= range.offset + range.size;
  };
  for (size_t rank = 0; rank < after.size(); ++rank) {
    for (size_t i = 0; i < after[rank].size(); ++i) {
      if (untouched(static_cast<int64_t>(i))) {
        ASSERT_EQ(after[rank][i], before[rank][i]) << "outside of the range, float " << i;
        continue;
      }
      ASSERT_EQ(after[rank][i], after[0][i]) << "worker " << rank << " has other bits";
      double sum = 0;
      double magnitude = 0;
      for (const Floats& floats : before) {
        sum += floats[i];
        magnitude += std::abs(floats[i]);
      }
      ASSERT_NEAR(after[rank][i], sum, kRounding * magnitude) << "float " << i;
    }
  }
}

TEST_P(AllReduceTest, SumsWithTheSameBitsEverywhereInAnyOrderOfArrival) {
  const int workers = GetParam();
  Random random(workers);
  for (const Algorithm& algorithm : Algorithms(workers)) {
    for (const int64_t size : Sizes(random)) {
      const int chunk = static_cast<int>(random.Below(2 * workers));
      const Range range{static_cast<int64_t>(random.Below(5)), size};
      SCOPED_TRACE(algorithm.name + ", " + std::to_string(size) + " floats, chunk " +
                   std::to_string(chunk));
      const std::vector<Floats> before = RandomFloats(size + 8, workers, random);
      const std::vector<Schedule> schedules = AllReduceSchedules(algorithm, chunk, range, workers);
      const std::vector<Floats> after = Interpreter(schedules, before, random.Next()).Run();
      ExpectSum(before, after, range);
      for (int order = 0; order < 3; ++order) {
        ASSERT_EQ(Interpreter(schedules, before, random.Next()).Run(), after);
      }
      if (HasFatalFailure() || HasFailure()) return;
    }
  }
}

// Small whole numbers are summed without rounding, so all algorithms have the same bits.
TEST_P(AllReduceTest, AlgorithmsAgree) {
  const int workers = GetParam();
  Random random(100 + workers);
  for (const int64_t size : Sizes(random)) {
    std::vector<Floats> before(workers, Floats(size));
    Floats sum(size);
    for (Floats& floats : before) {
      for (int64_t i = 0; i < size; ++i) {
        floats[i] = static_cast<float>(random.Below(1000));
        sum[i] += floats[i];
      }
    }
    for (const Algorithm& algorithm : Algorithms(workers)) {
      SCOPED_TRACE(algorithm.name);
      const std::vector<Schedule> schedules = AllReduceSchedules(algorithm, 1, {0, size}, workers);
      EXPECT_THAT(Interpreter(schedules, before, size).Run(), testing::Each(sum));
    }
  }
}

// What is sent after the kRound is what the others take: nobody adds any more, every float is
// rounded once.
TEST_P(AllReduceTest, EveryFloatIsRoundedOnceWhenItsSumIsWhole) {
  const int workers = GetParam();
  const Range range{3, 1009};
  for (const Algorithm& algorithm : Algorithms(workers)) {
    std::vector<int> rounded(range.offset + range.size);
    for (const Schedule& schedule : AllReduceSchedules(algorithm, 2, range, workers)) {
      bool whole = false;
      for (const Operation& operation : schedule) {
        EXPECT_FALSE(whole && operation.kind == Kind::kAdd) << algorithm.name;
        whole = whole || operation.kind == Kind::kRound || operation.kind == Kind::kCopy;
        if (operation.kind != Kind::kRound) continue;
        for (int64_t i = 0; i < operation.range.size; ++i) ++rounded[operation.range.offset + i];
      }
    }
    EXPECT_THAT(std::vector(rounded.begin() + range.offset, rounded.end()), testing::Each(1))
        << algorithm.name;
  }
}

// No algorithm moves more than any must: 2 (P - 1) times the range, over all workers.
TEST_P(AllReduceTest, BytesAreTheLeastPossible) {
  const int workers = GetParam();
  Random random(200 + workers);
  for (const Algorithm& algorithm : Algorithms(workers)) {
    for (const int64_t size : Sizes(random)) {
      int64_t sent = 0;
      int64_t received = 0;
      for (const Schedule& schedule : AllReduceSchedules(algorithm, 0, {0, size}, workers)) {
        sent += FloatsSent(schedule);
        received += FloatsReceived(schedule);
      }
      EXPECT_EQ(sent, 2 * (workers - 1) * size) << algorithm.name;
      EXPECT_EQ(received, sent) << algorithm.name;
    }
  }
}

// A ring of pieces of the exact sizes, and a power of two: every worker the same, 2 (P - 1)/P.
TEST_P(AllReduceTest, EveryWorkerMovesItsShare) {
  const int workers = GetParam();
  const int64_t size = int64_t{workers} * 60;
  for (const Algorithm& algorithm : Algorithms(workers)) {
    const bool balanced = [&] {
      const bool power = std::has_single_bit(static_cast<unsigned>(workers));
      if (algorithm.scheme != TORUS) return algorithm.scheme == RING || power;
      return std::all_of(algorithm.grid.grid().begin(), algorithm.grid.grid().end(),
                         [](const GridDimension& dimension) {
                           return dimension.algorithm() == RING ||
                                  std::has_single_bit(static_cast<unsigned>(dimension.size()));
                         });
    }();
    if (!balanced) continue;
    for (const Schedule& schedule : AllReduceSchedules(algorithm, 0, {0, size}, workers)) {
      EXPECT_EQ(FloatsSent(schedule), 2 * (workers - 1) * size / workers) << algorithm.name;
      EXPECT_EQ(FloatsReceived(schedule), 2 * (workers - 1) * size / workers) << algorithm.name;
      EXPECT_EQ(FloatsAdded(schedule), (workers - 1) * size / workers) << algorithm.name;
    }
  }
}

TEST_P(AllReduceTest, RoundsAreTheFormulas) {
  const int workers = GetParam();
  for (const Algorithm& algorithm : Algorithms(workers)) {
    SCOPED_TRACE(algorithm.name);
    EXPECT_EQ(Rounds(AllReduceSchedules(algorithm, 0, {0, 1000}, workers)),
              AllReduceRounds(algorithm.scheme, algorithm.grid, workers));
  }
}

// Chunks of halving-doubling share the extra work of binary blocks.
TEST_P(AllReduceTest, HalvingDoublingIsBalancedOverChunks) {
  const int workers = GetParam();
  const int64_t size = 64;
  for (int rank = 0; rank < workers; ++rank) {
    int64_t sent = 0;
    for (int chunk = 0; chunk < workers; ++chunk) {
      sent += FloatsSent(AllReduceSchedule(HALVING_DOUBLING, {}, chunk, {0, size}, rank, workers));
    }
    EXPECT_EQ(sent, 2 * (workers - 1) * size) << "worker " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Workers, AllReduceTest, testing::ValuesIn(kWorkers));

// Baidu's ring with pieces that differ: worker r never sends piece r + 1 in the first phase nor
// piece r + 2 in the second.
TEST(RingTest, BytesOfPiecesThatDiffer) {
  const int workers = 7;
  const int64_t size = 97;  // pieces of 13 and 14
  const auto piece = [&](int i) {
    i %= workers;
    return size * (i + 1) / workers - size * i / workers;
  };
  for (int rank = 0; rank < workers; ++rank) {
    const Schedule schedule = AllReduceSchedule(RING, {}, 0, {0, size}, rank, workers);
    EXPECT_EQ(FloatsSent(schedule), 2 * size - piece(rank + 1) - piece(rank + 2));
    EXPECT_EQ(FloatsReceived(schedule), 2 * size - piece(rank) - piece(rank + 1));
  }
}

TEST(RingTest, StepsAreBaidus) {
  const auto op = [](Kind kind, int peer, int step, int64_t offset) {
    return Operation{kind, peer, step, {offset, 10}};
  };
  EXPECT_THAT(AllReduceSchedule(RING, {}, 0, {0, 30}, 1, 3),
              testing::ElementsAre(op(Kind::kSend, 2, 0, 10), op(Kind::kAdd, 0, 0, 0),
                                   op(Kind::kSend, 2, 1, 0), op(Kind::kAdd, 0, 1, 20),
                                   op(Kind::kRound, 0, 0, 20),  //
                                   op(Kind::kSend, 2, 2, 20), op(Kind::kCopy, 0, 2, 10),
                                   op(Kind::kSend, 2, 3, 10), op(Kind::kCopy, 0, 3, 0)));
}

// Cho et al.'s and Mikami et al.'s formulas: along dimension i, 2 (p_i - 1)/p_i of what is left.
TEST(TorusTest, BytesAlongEachDimension) {
  const std::vector<int> sizes = {2, 3, 4};
  const Plan grid = Grid({{2, RING}, {3, RING}, {4, HALVING_DOUBLING}});
  const int64_t size = 24 * 5;
  for (int chunk = 0; chunk < 4; ++chunk) {
    for (int rank = 0; rank < 24; ++rank) {
      std::vector<int64_t> along(3);
      for (const Operation& operation :
           AllReduceSchedule(TORUS, grid, chunk, {0, size}, rank, 24)) {
        if (operation.kind != Kind::kSend) continue;
        // Ranks differ in one coordinate, which is the dimension.
        const int dimension = rank % 2 != operation.peer % 2           ? 0
                              : rank / 2 % 3 != operation.peer / 2 % 3 ? 1
                                                                       : 2;
        along[dimension] += operation.range.size;
      }
      int64_t left = size;
      for (int i = 0; i < 3; ++i) {
        const int dimension = (chunk + i) % 3;
        const int p = sizes[dimension];
        EXPECT_EQ(along[dimension], 2 * left * (p - 1) / p) << "chunk " << chunk;
        left /= p;
      }
    }
  }
}

TEST(TorusTest, TheFirstDimensionMovesMostAndChunksTakeTurns) {
  const Plan grid = Grid({{2, RING}, {4, RING}});
  EXPECT_EQ(AllReduceSchedule(TORUS, grid, 0, {0, 80}, 0, 8).front().peer, 1);
  EXPECT_EQ(AllReduceSchedule(TORUS, grid, 1, {0, 80}, 0, 8).front().peer, 2);
  EXPECT_EQ(AllReduceSchedule(TORUS, grid, 2, {0, 80}, 0, 8).front().peer, 1);
}

// Blocks in any order in memory, some empty.
std::vector<Range> RandomBlocks(int workers, Random& random) {
  std::vector<int> order(workers);
  for (int i = 0; i < workers; ++i) order[i] = i;
  if (random.Chance(0.5)) Shuffle(order, random.Next());
  std::vector<Range> blocks(workers);
  int64_t offset = 0;
  for (const int worker : order) {
    if (random.Chance(0.3)) ++offset;  // a gap
    blocks[worker] = {offset, static_cast<int64_t>(random.Below(random.Chance(0.3) ? 1 : 40))};
    offset += blocks[worker].size;
  }
  return blocks;
}

TEST(AllGatherTest, EveryWorkerEndsWithAllBlocks) {
  Random random(5);
  for (const int workers : kWorkers) {
    for (int trial = 0; trial < 30; ++trial) {
      const std::vector<Range> blocks = RandomBlocks(workers, random);
      int64_t total = 0;
      int64_t end = 0;
      for (const Range& block : blocks) {
        total += block.size;
        end = std::max(end, block.offset + block.size);
      }
      Floats all(end, -1);  // gaps stay
      std::vector<Floats> before(workers, all);
      for (int rank = 0; rank < workers; ++rank) {
        for (int64_t i = blocks[rank].offset; i < blocks[rank].offset + blocks[rank].size; ++i) {
          all[i] = before[rank][i] = static_cast<float>(random.Gaussian());
        }
      }
      for (const Scheme scheme : {RING, HALVING_DOUBLING}) {
        std::vector<Schedule> schedules;
        for (int rank = 0; rank < workers; ++rank) {
          schedules.push_back(AllGatherSchedule(scheme, blocks, rank));
          EXPECT_EQ(FloatsReceived(schedules.back()), total - blocks[rank].size);
          EXPECT_EQ(FloatsAdded(schedules.back()), 0);
        }
        EXPECT_THAT(Interpreter(schedules, before, random.Next()).Run(), testing::Each(all));
      }
    }
  }
}

// Blocks that lie side by side travel together as far as a message may go.
TEST(AllGatherTest, NoMessageIsLongerThanTheLongestOrABlock) {
  constexpr int64_t kMost = kMostBodyBytes / static_cast<int64_t>(sizeof(float));
  constexpr int kRanks = 8;
  for (const int64_t block : {kMost, kMost / 3}) {
    std::vector<Range> blocks;
    for (int64_t i = 0; i < kRanks; ++i) blocks.push_back({i * block, block});
    std::vector<Schedule> schedules;
    for (int rank = 0; rank < kRanks; ++rank) {
      schedules.push_back(AllGatherSchedule(HALVING_DOUBLING, blocks, rank));
    }
    int64_t longest = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      for (const Operation& operation : schedules[rank]) {
        longest = std::max(longest, operation.range.size);
        if (operation.kind != Operation::Kind::kSend) continue;
        // The receiver waits for the same.
        const Operation awaited = {Operation::Kind::kCopy, rank, operation.step, operation.range};
        EXPECT_THAT(schedules[operation.peer], testing::Contains(awaited));
      }
    }
    EXPECT_EQ(longest, kMost / block * block);
  }
}

TEST(AllGatherTest, DoublingTakesTheLogarithmOfTheWorkersRounds) {
  for (const int workers : kWorkers) {
    std::vector<Range> blocks;
    for (int i = 0; i < workers; ++i) blocks.push_back({i * 10, 10});
    std::vector<Schedule> doubling;
    std::vector<Schedule> ring;
    for (int rank = 0; rank < workers; ++rank) {
      doubling.push_back(AllGatherSchedule(HALVING_DOUBLING, blocks, rank));
      ring.push_back(AllGatherSchedule(RING, blocks, rank));
    }
    EXPECT_EQ(Rounds(doubling), std::bit_width(static_cast<unsigned>(workers - 1)));
    EXPECT_EQ(Rounds(ring), workers - 1);
  }
}

// Worked out or stored, they are the same steps; what one sends the other awaits, and nothing else.
TEST_P(AllReduceTest, EveryFrameHasItsOperation) {
  const int workers = GetParam();
  Random random(static_cast<uint64_t>(workers));
  for (const Algorithm& algorithm : Algorithms(workers)) {
    const int chunk = static_cast<int>(random.Below(5));
    const Range range{7, static_cast<int64_t>(random.Below(200))};
    const std::vector<Schedule> schedules = AllReduceSchedules(algorithm, chunk, range, workers);
    for (int rank = 0; rank < workers; ++rank) {
      const Steps worked_out =
          AllReduceSteps(algorithm.scheme, algorithm.grid, chunk, range, rank, workers);
      const Steps stored = schedules[rank];
      Schedule carried_out;
      for (int i = 0; i < worked_out.size(); ++i) {
        if (worked_out.At(i).range.size > 0) carried_out.push_back(worked_out.At(i));
      }
      EXPECT_EQ(carried_out, schedules[rank]) << algorithm.name;
      std::map<std::pair<int, int>, Operation> awaited;  // by peer and step
      for (const Operation& operation : schedules[rank]) {
        if (operation.kind != Kind::kAdd && operation.kind != Kind::kCopy) continue;
        awaited[{operation.peer, operation.step}] = operation;
      }
      for (int peer = -1; peer <= workers; ++peer) {
        for (int step = -1; step < 2 * workers + 8; ++step) {
          const auto expected = awaited.find({peer, step});
          for (const Steps& steps : {worked_out, stored}) {
            const std::optional<int> index = steps.Awaiting(peer, step);
            const bool found = index && steps.At(*index).range.size > 0;
            ASSERT_EQ(found, expected != awaited.end())
                << algorithm.name << " " << peer << " " << step;
            if (found) {
              EXPECT_EQ(steps.At(*index), expected->second) << algorithm.name;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace poseidon
