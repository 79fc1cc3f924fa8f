#include "device/local_reduction.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/random.h"

namespace poseidon {
namespace {

using Floats = std::vector<float>;

TEST(ShareOf, PutsSharesInOrderWithoutGaps) {
  for (const size_t floats : {0, 1, 2, 7, 100, 101}) {
    for (size_t devices = 1; devices < 9; ++devices) {
      size_t end = 0;
      for (size_t d = 0; d < devices; ++d) {
        const LocalShare share = ShareOf(floats, devices, d);
        EXPECT_EQ(share.begin, end);
        EXPECT_GE(share.size, floats / devices);
        EXPECT_LT(share.size, floats / devices + devices);
        end += share.size;
      }
      EXPECT_EQ(end, floats);
    }
  }
}

class HostLocalReductionTest : public testing::TestWithParam<int> {};

// Call after call in the same streams, in which what the program does between two calls must not
// come too early.
TEST_P(HostLocalReductionTest, AddsUpInTheOrderOfDevicesAndGathers) {
  Random random(GetParam());
  const size_t devices = 1 + random.Below(6);
  std::vector<std::unique_ptr<HostDevice>> owners;
  std::vector<HostDevice*> members;
  std::vector<DeviceStream> streams;
  for (size_t d = 0; d < devices; ++d) {
    owners.push_back(std::make_unique<HostDevice>(HostDevice::Options{}));
    members.push_back(owners.back().get());
    streams.push_back(members.back()->MakeStream());
  }
  HostLocalReduction reduction(members);
  const auto synchronize = [&] {
    for (size_t d = 0; d < devices; ++d) members[d]->Synchronize(streams[d]);
  };
  for (int call = 0; call < 10; ++call) {
    const size_t size = random.Below(random.Chance(0.3) ? 10 : 20'000);
    std::vector<Floats> floats(devices, Floats(size)), shares(devices);
    Floats sum(size);
    std::vector<Floats> given(devices, Floats(size));
    for (size_t d = 0; d < devices; ++d) {
      for (size_t i = 0; i < size; ++i) {
        given[d][i] = static_cast<float>(random.Gaussian());
        sum[i] = d == 0 ? given[d][i] : sum[i] + given[d][i];
      }
    }
    std::vector<LocalReduction::Member> all;
    for (size_t d = 0; d < devices; ++d) {
      members[d]->Run(streams[d], [&, d] { floats[d] = given[d]; });
    }
    synchronize();
    for (size_t d = 0; d < devices; ++d) all.push_back({floats[d], streams[d]});
    reduction.ReduceScatter(all);
    for (size_t d = 0; d < devices; ++d) {
      members[d]->Run(streams[d], [&, d] {
        const LocalShare share = ShareOf(size, devices, d);
        const auto begin = floats[d].begin() + static_cast<std::ptrdiff_t>(share.begin);
        shares[d].assign(begin, begin + static_cast<std::ptrdiff_t>(share.size));
        // All but the own share is undefined: nobody may need it any more.
        floats[d].assign(size, -1.0F);
        std::copy(shares[d].begin(), shares[d].end(),
                  floats[d].begin() + static_cast<std::ptrdiff_t>(share.begin));
      });
    }
    reduction.AllGather(all);
    synchronize();
    Floats joined;
    for (size_t d = 0; d < devices; ++d) {
      joined.insert(joined.end(), shares[d].begin(), shares[d].end());
      EXPECT_EQ(floats[d], sum);
    }
    EXPECT_EQ(joined, sum);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, HostLocalReductionTest, testing::Range(0, 12));

}  // namespace
}  // namespace poseidon
