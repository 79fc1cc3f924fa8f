#include "transport/sim/sim_heap.h"

#include <gtest/gtest.h>

#include <set>

#include "core/random.h"

namespace poseidon {
namespace {

TEST(SimHeapTest, SmallestFirstWhateverComesAndGoes) {
  Random random(1);
  for (int trial = 0; trial < 200; ++trial) {
    SimHeap<int> heap;
    std::multiset<int> expected;
    for (int i = 0; i < 500; ++i) {
      if (random.Chance(0.6)) {
        const int element = static_cast<int>(random.Below(100));
        heap.Push(element);
        expected.insert(element);
      } else if (!expected.empty()) {
        ASSERT_EQ(heap.top(), *expected.begin());
        ASSERT_EQ(heap.Pop(), *expected.begin());
        expected.erase(expected.begin());
      }
      if (random.Chance(0.02)) {
        const int divisor = 2 + static_cast<int>(random.Below(4));
        const auto removed = [divisor](int element) { return element % divisor == 0; };
        heap.RemoveIf(removed);
        std::erase_if(expected, removed);
      }
      ASSERT_EQ(heap.empty(), expected.empty());
    }
    for (const int element : expected) ASSERT_EQ(heap.Pop(), element);
    EXPECT_TRUE(heap.empty());
  }
}

}  // namespace
}  // namespace poseidon
