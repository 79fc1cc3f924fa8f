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

// One for each device, in their order.
class Communicators {
 public:
  explicit Communicators(const std::vector<int>& devices) : all_(devices.size()) {
    CheckNccl(ncclCommInitAll(all_.data(), static_cast<int>(devices.size()), devices.data()),
              "join the worker's devices");
  }
  // Where a device has died, one that is destroyed in good order may wait for ever.
  ~Communicators() {
    const bool failed = Failure() != ncclSuccess;
    for (ncclComm_t communicator : all_) {
      failed ? ncclCommAbort(communicator) : ncclCommDestroy(communicator);
    }
  }
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  size_t size() const { return all_.size(); }
  ncclComm_t operator[](size_t device) const { return all_[device]; }
  // What has gone wrong in a stream, if something has.
  ncclResult_t Failure() const {
    for (ncclComm_t communicator : all_) {
      ncclResult_t result = ncclSuccess;
      const ncclResult_t asked = ncclCommGetAsyncError(communicator, &result);
      if (asked != ncclSuccess) return asked;
      if (result != ncclSuccess && result != ncclInProgress) return result;
    }
    return ncclSuccess;
  }

 private:
  std::vector<ncclComm_t> all_;
};

// What one communicator is asked for it does in that order, whatever the streams: so values would
// be gathered only when all gradients that wait for their backward passes have been added up. Each
// has communicators of its own, therefore.
class NcclReduction : public LocalReduction {
 public:
  explicit NcclReduction(const std::vector<int>& devices) : adding_(devices), gathering_(devices) {}

  void Check() const override {
    CheckNccl(adding_.Failure(), "add up gradients");
    CheckNccl(gathering_.Failure(), "gather values");
  }

  void ReduceScatter(std::span<const Member> members) override {
    Group group;
    for (size_t d = 0; d < Count(members); ++d) {
      const auto [floats, share, stream] = Of(members, d);
      if (share > 0) {
        CheckNccl(ncclReduceScatter(floats, floats + d * share, share, ncclFloat, ncclSum,
                                    adding_[d], stream),
                  "add up gradients");
      }
      if (const size_t rest = Rest(members); rest > 0) {
        float* const end = floats + share * adding_.size();
        CheckNccl(ncclReduce(end, end, rest, ncclFloat, ncclSum, Last(), adding_[d], stream),
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
            ncclAllGather(floats + d * share, floats, share, ncclFloat, gathering_[d], stream),
            "gather values");
      }
      if (const size_t rest = Rest(members); rest > 0) {
        float* const end = floats + share * gathering_.size();
        CheckNccl(ncclBroadcast(end, end, rest, ncclFloat, Last(), gathering_[d], stream),
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
    CHECK_EQ(members.size(), adding_.size());
    return members.size();
  }
  Part Of(std::span<const Member> members, size_t d) const {
    return {members[d].floats.data(), ShareOf(members[d].floats.size(), members.size(), 0).size,
            static_cast<cudaStream_t>(members[d].stream)};
  }
  static size_t Rest(std::span<const Member> members) {
    return members[0].floats.size() % members.size();
  }
  int Last() const { return static_cast<int>(adding_.size()) - 1; }

  Communicators adding_;
  Communicators gathering_;
};

}  // namespace

std::unique_ptr<LocalReduction> MakeNcclReduction(const std::vector<int>& devices) {
  return std::make_unique<NcclReduction>(devices);
}

}  // namespace poseidon
