// DeviceStaging on GPUs: small trainings whose forward and backward passes are kernels in a stream
// of the program's, against the same arithmetic on the host, bit for bit. And NCCL's local
// reduction, among as many GPUs as there are.
#include <thread>

#include "client/staging/device_staging.h"
#include "device/cuda/cuda_device.h"
#include "device/cuda/factor_update.h"
#include "device/cuda/gradient_packer.h"
#include "device/cuda/sum.h"
#ifdef POSEIDON_TEST_NCCL
#include "device/cuda/nccl_reduction.h"
#endif
#include "core/random.h"
#include "tests/gpu/on_device.h"
#include "tests/unit/client/device_staging_testing.h"

namespace poseidon {
namespace {

// What is added to a quarter of the values to make a worker's gradient.
Floats NoiseOf(size_t floats, int rank) {
  Random random(rank + 1);
  Floats noise(floats);
  for (float& f : noise) f = static_cast<float>(random.Uniform()) - 0.5F;
  return noise;
}

void CheckMemset(std::span<float> floats, cudaStream_t stream) {
  // All bits set are a NaN.
  CheckCuda(cudaMemsetAsync(floats.data(), 0xff, floats.size_bytes(), stream), "fill floats");
}

// A worker on GPU 0, on which all workers are.
class GpuWorker {
 public:
  GpuWorker(TestExchange& exchange, const std::vector<TestLayer>& layers, int rank)
      : exchange_(exchange), device_(MakeCudaDevice(0)) {
    CheckCuda(cudaStreamCreateWithFlags(&compute_, cudaStreamNonBlocking), "make a stream");
    DeviceReplica replica{device_.get(), {}};
    replica.packer = packer_.get();
    for (const TestLayer& layer : layers) {
      const Floats unknown(layer.floats, kPoison);
      memory_.push_back({std::make_unique<OnDevice<float>>(unknown),
                         std::make_unique<OnDevice<float>>(unknown),
                         std::make_unique<OnDevice<float>>(NoiseOf(layer.floats, rank))});
      replica.layers.push_back({{values(memory_.size() - 1)}, {gradient()}, {}, {}});
    }
    stage_ = std::make_unique<DeviceStaging>(exchange, std::vector<DeviceReplica>{replica});
  }
  ~GpuWorker() {
    stage_.reset();
    cudaStreamDestroy(compute_);
  }

  void Iterate() {
    const DeviceStream streams[] = {compute_};
    const int layers = static_cast<int>(memory_.size());
    for (int l = 0; l < layers; ++l) stage_->WaitFresh(l, streams);
    for (int l = layers - 1; l >= 0; --l) {
      const std::span<float> v = values(l), g = memory_[l].gradient->span();
      CheckCuda(
          cudaMemcpyAsync(g.data(), v.data(), v.size_bytes(), cudaMemcpyDeviceToDevice, compute_),
          "copy");
      cuda::Scale(g, 0.25F, compute_);
      cuda::AddInto(g, memory_[l].noise->span(), compute_);
      CheckMemset(v, compute_);  // nobody may read the old values any more
      stage_->GradientReady(l, streams);
    }
    stage_->EndIteration();
    exchange_.EndIteration();
  }

  Floats FinalValues(int layer) {
    const DeviceStream streams[] = {compute_};
    stage_->WaitFresh(layer, streams);
    return memory_[layer].values->Values();
  }

 private:
  struct Memory {
    std::unique_ptr<OnDevice<float>> values, gradient, noise;
  };
  std::span<float> values(size_t layer) { return memory_[layer].values->span(); }
  std::span<float> gradient() { return memory_.back().gradient->span(); }

  TestExchange& exchange_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<GradientPacker> packer_ = MakeCudaGradientPacker(0);
  cudaStream_t compute_ = nullptr;
  std::vector<Memory> memory_;
  std::unique_ptr<DeviceStaging> stage_;
};

class DeviceStageOnGpu : public testing::TestWithParam<bool> {};

TEST_P(DeviceStageOnGpu, TrainsToTheBitsOfTheHost) {
  const bool packs = GetParam();
  constexpr int kWorkers = 3, kIterations = 6;
  const std::vector<TestLayer> layers = {
      {.floats = 500}, {.floats = 1}, {.floats = 3'000'000}, {.floats = 70'001}, {.floats = 10}};
  TestNetwork network(
      kWorkers, layers, [](int layer) { return std::chrono::microseconds(300 * layer); },
      MakeCudaDevice(0));
  network.devices_pack = packs;
  std::vector<std::thread> threads;
  std::vector<std::vector<Floats>> got(kWorkers);
  for (int rank = 0; rank < kWorkers; ++rank) {
    threads.emplace_back([&, rank] {
      GpuWorker worker(network.worker(rank), layers, rank);
      for (int i = 0; i < kIterations; ++i) worker.Iterate();
      for (size_t l = 0; l < layers.size(); ++l) {
        got[rank].push_back(worker.FinalValues(static_cast<int>(l)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t l = 0; l < layers.size(); ++l) {
    Floats values(layers[l].floats, 1.0F);
    for (int iteration = 0; iteration < kIterations; ++iteration) {
      Floats sum(values.size(), 0.0F);
      for (int rank = 0; rank < kWorkers; ++rank) {
        const Floats noise = NoiseOf(values.size(), rank);
        Floats gradient(values.size());
        for (size_t i = 0; i < sum.size(); ++i) gradient[i] = values[i] * 0.25F + noise[i];
        if (packs) Round(kPacked, gradient);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
      }
      for (size_t i = 0; i < sum.size(); ++i) values[i] -= kStep * sum[i];
    }
    for (int rank = 0; rank < kWorkers; ++rank) {
      ASSERT_NO_FATAL_FAILURE(ExpectSameBits(got[rank][l], values)) << "layer " << l;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Packed, DeviceStageOnGpu, testing::Bool());

// Factors stay the same in all iterations, so values go down in equal steps.
TEST(FactorsOnGpu, UpdatesWithTheFactorsOfAllWorkers) {
  constexpr int kWorkers = 3, kIterations = 5;
  constexpr size_t kOutputs = 70, kInputs = 130, kRows = 8;
  const std::vector<TestLayer> layers = {
      {.floats = kOutputs * kInputs, .rows = kRows, .outputs = kOutputs}};
  TestNetwork network(
      kWorkers, layers, [](int) { return std::chrono::microseconds(300); }, MakeCudaDevice(0));
  network.devices_update = true;
  std::vector<std::thread> threads;
  std::vector<Floats> on_device(kWorkers), on_host(kWorkers);
  for (int rank = 0; rank < kWorkers; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<Device> device = MakeCudaDevice(0);
      const std::unique_ptr<FactorUpdate> update = MakeCudaFactorUpdate(0);
      const OnDevice<float> values(Floats(layers[0].floats, kPoison));
      const OnDevice<float> u(NoiseOf(kRows * kOutputs, 2 * rank));
      const OnDevice<float> v(NoiseOf(kRows * kInputs, 2 * rank + 1));
      TestExchange& exchange = network.worker(rank);
      DeviceStaging stage(
          exchange, {{device.get(), {{{values.span()}, {}, u.span(), v.span()}}, update.get()}});
      const DeviceStream streams[] = {nullptr};
      for (int i = 0; i < kIterations; ++i) {
        stage.WaitFresh(0, streams);
        stage.GradientReady(0, streams);
        stage.EndIteration();
        exchange.EndIteration();
      }
      stage.WaitFresh(0, streams);
      on_device[rank] = values.Values();
      stage.SyncToHost();
      on_host[rank] = exchange.Values(0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<double> sum(layers[0].floats, 0.0);
  for (int rank = 0; rank < kWorkers; ++rank) {
    const Floats u = NoiseOf(kRows * kOutputs, 2 * rank);
    const Floats v = NoiseOf(kRows * kInputs, 2 * rank + 1);
    for (size_t i = 0; i < kRows * sum.size(); ++i) {
      const size_t row = i / sum.size(), o = i % sum.size() / kInputs, n = i % kInputs;
      sum[i % sum.size()] += double{u[row * kOutputs + o]} * v[row * kInputs + n];
    }
  }
  for (size_t i = 0; i < sum.size(); ++i) {
    // A few roundings of numbers near 1 an iteration.
    ASSERT_NEAR(on_device[0][i], 1 - kIterations * UpdateRule().base_lr * sum[i], 1e-5);
  }
  for (int rank = 0; rank < kWorkers; ++rank) {
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(on_device[rank], on_device[0]));
    ASSERT_NO_FATAL_FAILURE(ExpectSameBits(on_host[rank], on_device[0]));
  }
}

#ifdef POSEIDON_TEST_NCCL
TEST(NcclReduction, AddsUpAndGathers) {
  const int devices = FindCudaDevices().count;
  std::vector<int> indices;
  for (int d = 0; d < devices; ++d) indices.push_back(d);
  const std::unique_ptr<LocalReduction> reduction = MakeNcclReduction(indices);
  for (const size_t size : {1, 5, 1000, 100'003}) {
    std::vector<std::unique_ptr<OnDevice<float>>> floats;
    std::vector<LocalReduction::Member> members;
    Floats sum(size, 0.0F);
    for (int d = 0; d < devices; ++d) {
      CheckCuda(cudaSetDevice(d), "use device");
      Random random(d);
      Floats given(size);
      for (float& f : given) f = static_cast<float>(random.Below(1000));  // sums are exact
      for (size_t i = 0; i < size; ++i) sum[i] += given[i];
      floats.push_back(std::make_unique<OnDevice<float>>(given));
      members.push_back({floats.back()->span(), nullptr});
    }
    reduction->ReduceScatter(members);
    for (int d = 0; d < devices; ++d) {
      CheckCuda(cudaSetDevice(d), "use device");
      const Floats got = floats[d]->Values();
      const LocalShare share = ShareOf(size, devices, d);
      for (size_t i = share.begin; i < share.begin + share.size; ++i) ASSERT_EQ(got[i], sum[i]);
    }
    reduction->AllGather(members);
    for (int d = 0; d < devices; ++d) {
      CheckCuda(cudaSetDevice(d), "use device");
      EXPECT_EQ(floats[d]->Values(), sum);
    }
  }
  CheckCuda(cudaSetDevice(0), "use device 0");
}
#endif

}  // namespace
}  // namespace poseidon
