#include "device/cuda/nccl_reduction.h"

#include <cuda_runtime.h>
#include <glog/logging.h>
#include <nccl.h>

#include <string>

#include "core/error.h"

namespace poseidon {
namespace {

void CheckNccl(ncclResult_t result, const char* what) {
  if (result == ncclSuccess) return;
  throw Error(ExitCode::kFailure,
              std::string("NCCL can't ") + what + ": " + ncclGetErrorString(result));
}

// One thread drives all devices, so their calls must be one group or the first would wait for ever.
class Group {
 public:
  Group() { CheckNccl(ncclGroupStart(), "start a group"); }
  void End(const char* what) {
    open_ = false;
    CheckNccl(ncclGroupEnd(), what);
  }
  ~Group() {
    if (open_) ncclGroupEnd();
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

 private:
  bool open_ = true;
};

class NcclReduction : public LocalReduction {
 public:
  explicit NcclReduction(const std::vector<int>& devices) : communicators_(devices.size()) {
    CheckNccl(
        ncclCommInitAll(communicators_.data(), static_cast<int>(devices.size()), devices.data()),
        "join the worker's devices");
  }
  ~NcclReduction() override {
    for (ncclComm_t communicator : communicators_) ncclCommDestroy(communicator);
  }

  void ReduceScatter(std::span<const Member> members) override {
    Group group;
    for (size_t d = 0; d < Count(members); ++d) {
      const auto [floats, share, stream] = Of(members, d);
      if (share > 0) {
        CheckNccl(ncclReduceScatter(floats, floats + d * share, share, ncclFloat, ncclSum,
                                    communicators_[d], stream),
                  "add up gradients");
      }
      if (const size_t rest = Rest(members); rest > 0) {
        float* const end = floats + share * communicators_.size();
        CheckNccl(ncclReduce(end, end, rest, ncclFloat, ncclSum, Last(), communicators_[d], stream),
                  "add up gradients");
      }
    }
    group.End("add up gradients");
  }

  void AllGather(std::span<const Member> members) override {
    Group group;
    for (size_t d = 0; d < Count(members); ++d) {
      const auto [floats, share, stream] = Of(members, d);
      if (share > 0) {
        CheckNccl(
            ncclAllGather(floats + d * share, floats, share, ncclFloat, communicators_[d], stream),
            "gather values");
      }
      if (const size_t rest = Rest(members); rest > 0) {
        float* const end = floats + share * communicators_.size();
        CheckNccl(ncclBroadcast(end, end, rest, ncclFloat, Last(), communicators_[d], stream),
                  "gather values");
      }
    }
    group.End("gather values");
  }

 private:
  struct Part {
    float* floats;
    size_t share;  // of each device; the rest is the last one's (ShareOf)
    cudaStream_t stream;
  };

  size_t Count(std::span<const Member> members) const {
    CHECK_EQ(members.size(), communicators_.size());
    return members.size();
  }
  Part Of(std::span<const Member> members, size_t d) const {
    return {members[d].floats.data(), ShareOf(members[d].floats.size(), members.size(), 0).size,
            static_cast<cudaStream_t>(members[d].stream)};
  }
  static size_t Rest(std::span<const Member> members) {
    return members[0].floats.size() % members.size();
  }
  int Last() const { return static_cast<int>(communicators_.size()) - 1; }

  std::vector<ncclComm_t> communicators_;
};

}  // namespace

std::unique_ptr<LocalReduction> MakeNcclReduction(const std::vector<int>& devices) {
  return std::make_unique<NcclReduction>(devices);
}

}  // namespace poseidon
