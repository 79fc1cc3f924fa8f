#include "device/local_reduction.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "core/arithmetic/sum.h"

namespace poseidon {

LocalShare ShareOf(size_t floats, size_t devices, size_t device) {
  const size_t share = floats / devices;
  const size_t begin = share * device;
  return {.begin = begin, .size = device + 1 == devices ? floats - begin : share};
}

HostLocalReduction::HostLocalReduction(std::vector<HostDevice*> devices)
    : devices_(std::move(devices)) {
  for (HostDevice* device : devices_) there_.push_back(device->MakeEvent());
}

void HostLocalReduction::Meet(std::span<const Member> members) {
  CHECK_EQ(members.size(), devices_.size());
  for (size_t d = 0; d < devices_.size(); ++d) {
    CHECK_EQ(members[d].floats.size(), members[0].floats.size());
    devices_[d]->Record(*there_[d], members[d].stream);
  }
  for (size_t d = 0; d < devices_.size(); ++d) {
    for (const auto& event : there_) devices_[d]->Wait(members[d].stream, *event);
  }
}

void HostLocalReduction::ReduceScatter(std::span<const Member> members) {
  Meet(members);
  for (size_t d = 0; d < devices_.size(); ++d) {
    const LocalShare share = ShareOf(members[d].floats.size(), devices_.size(), d);
    std::vector<std::span<float>> parts;
    for (const Member& member : members) {
      parts.push_back(member.floats.subspan(share.begin, share.size));
    }
    devices_[d]->Run(members[d].stream, [parts = std::move(parts), d] {
      // In the order of devices, though the sum stands in the place of one of them.
      std::vector<float> sum(parts[0].begin(), parts[0].end());
      for (size_t i = 1; i < parts.size(); ++i) AddInto(sum, std::as_bytes(parts[i]));
      std::copy(sum.begin(), sum.end(), parts[d].begin());
    });
  }
  Meet(members);  // nobody's floats change before all have read them
}

void HostLocalReduction::AllGather(std::span<const Member> members) {
  Meet(members);
  for (size_t d = 0; d < devices_.size(); ++d) {
    std::vector<std::pair<std::span<float>, std::span<const float>>> copies;
    for (size_t from = 0; from < devices_.size(); ++from) {
      const LocalShare share = ShareOf(members[d].floats.size(), devices_.size(), from);
      if (from == d) continue;
      copies.emplace_back(members[d].floats.subspan(share.begin, share.size),
                          members[from].floats.subspan(share.begin, share.size));
    }
    devices_[d]->Run(members[d].stream, [copies = std::move(copies)] {
      for (const auto& [to, from] : copies) std::copy(from.begin(), from.end(), to.begin());
    });
  }
  Meet(members);
}

}  // namespace poseidon
