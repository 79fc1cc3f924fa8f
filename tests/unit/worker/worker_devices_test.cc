#include "worker/worker_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/error.h"
#include "device/cuda/cuda_device.h"
#include "worker/cuda_compute_device.h"

namespace poseidon {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

JobConfig Config(int devices, Training::Device device) {
  JobConfig config;
  config.path = "job.prototxt";
  config.job.mutable_cluster()->set_devices_per_worker(devices);
  config.job.mutable_training()->set_device(device);
  return config;
}

TEST(HostComputeDevice, ComputesInOrderByAThreadOfItsOwn) {
  HostComputeDevice device({.name = "replica"});
  std::vector<float> sum = {1, 2, 3};
  const std::vector<float> addend = {10, 20, 30};
  std::thread::id first, second;
  device.Run([&] {
    first = std::this_thread::get_id();
    sum[0] = 5;
  });
  device.AddInto(sum, addend);
  device.Scale(sum, 2);
  device.RunAndWait([&] { second = std::this_thread::get_id(); });
  EXPECT_THAT(sum, testing::ElementsAre(30, 44, 66));
  EXPECT_EQ(first, second);
  EXPECT_NE(first, std::this_thread::get_id());
}

TEST(HostComputeDevice, ThrowsWhatItsWorkHasThrown) {
  HostComputeDevice device({.name = "replica"});
  EXPECT_NO_THROW(device.RethrowFromWork());
  std::atomic<bool> went_on = false;
  device.Run([] { throw DataError("record 17 is lost"); });
  device.Run([&] { went_on = true; });
  EXPECT_THAT([&] { device.Wait(); }, ThrowsMessage<DataError>("record 17 is lost"));
  EXPECT_THAT([&] { device.RethrowFromWork(); }, ThrowsMessage<DataError>("record 17 is lost"));
  EXPECT_FALSE(went_on);
}

TEST(WorkerDevices, AReplicaForEachDevice) {
  const WorkerDevices one = MakeWorkerDevices(Config(1, Training::CPU), 0);
  EXPECT_TRUE(one.devices.empty());
  WorkerSessionOptions options;
  one.Describe(options);
  EXPECT_FALSE(options.allocate);

  const WorkerDevices three = MakeWorkerDevices(Config(3, Training::CPU), 7);
  ASSERT_EQ(three.devices.size(), 3U);
  EXPECT_NE(three.reduction, nullptr);
  EXPECT_EQ(three.devices[2]->device().name(), "CPU replica 2");
  EXPECT_FALSE(three.devices[2]->cuda_device());
  three.Describe(options);
  ASSERT_TRUE(options.allocate);
  EXPECT_NE(options.allocate(4096), nullptr);
  EXPECT_FALSE(options.devices_update);
  EXPECT_FALSE(options.devices_pack);
}

TEST(WorkerDevices, WorkersOfOneMachineTakeOneGpuAfterTheOther) {
  const JobConfig config = Config(2, Training::CUDA);
  EXPECT_EQ(FirstDevice(config.job, -1), 0);
  EXPECT_EQ(FirstDevice(config.job, 0), 0);
  EXPECT_EQ(FirstDevice(config.job, 3), 6);
}

TEST(WorkerDevices, SaysWhyThereIsNoGpu) {
  const int there = FindCudaDevices().count;
  if (there == 0) {
    EXPECT_THAT([] { MakeWorkerDevices(Config(1, Training::CUDA), 5); },
                ThrowsMessage<ConfigError>(HasSubstr("training.device is cuda, but ")));
  } else {
    EXPECT_THAT([=] { MakeWorkerDevices(Config(there + 1, Training::CUDA), 0); },
                ThrowsMessage<ConfigError>(HasSubstr("but this machine has ")));
  }
}

// What a worker asks before it joins the job: a GPU that is there is of no use to an engine that
// can't compute on it.
TEST(WorkerDevices, EnginesMustBeAbleToComputeOnThem) {
  class Gpu : public HostComputeDevice {
   public:
    explicit Gpu(int number) : HostComputeDevice({.name = "gpu"}), number_(number) {}
    std::optional<int> cuda_device() const override { return number_; }

   private:
    int number_;
  };
  class Plan : public EngineConfig {
   public:
    TrainerOptions trainer_options() const override { return TrainerOptions(); }
    std::unique_ptr<Engine> Make(int, int, EngineDevice*) const override { return nullptr; }
    void CheckDevice(std::optional<int> cuda_device) const override {
      if (cuda_device == 6) throw ConfigError("no engine on 6");
    }
  };
  WorkerDevices devices;
  devices.devices.push_back(
      std::make_unique<HostComputeDevice>(HostDevice::Options{.name = "host"}));
  devices.devices.push_back(std::make_unique<Gpu>(5));
  EXPECT_NO_THROW(CheckEngines(Plan(), devices));
  devices.devices.push_back(std::make_unique<Gpu>(6));
  EXPECT_THAT([&] { CheckEngines(Plan(), devices); }, ThrowsMessage<ConfigError>("no engine on 6"));
}

}  // namespace
}  // namespace poseidon
