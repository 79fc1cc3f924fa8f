// TorchTester: a net's test phase, whose results are averaged over batches.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker/engine/engine.h"
#include "worker/torch/torch_net.h"

namespace poseidon {

// One thread at a time.
class TorchTester {
 public:
  // `batches`, at least 1, make a test. Throws as TorchNet does.
  TorchTester(NetDescription description, const BatchReaderOptions& data, int64_t batches,
              at::Device device = at::kCPU, EngineDevice* engine_device = nullptr);

  const NetDescription& description() const { return net_.description(); }
  // Makes `values` the parameters that the step owns. The memory must outlive this.
  void BindParameters(int step, std::span<float> values) { net_.BindParameters(step, values); }

  // The mean over the batches, from the first on. All parameters are bound. `progress`, if it is
  // not null, is called after each batch, with how many of all are done. Throws DataError.
  TestResult Run(const std::function<void(int64_t done, int64_t all)>& progress = nullptr);

 private:
  // A blob that no layer reads: a result.
  struct Output {
    int step = 0;
    int top = 0;
  };

  void FindOutputs();
  std::optional<int> AccuracyStep() const;

  TorchNet net_;
  int64_t batches_;
  std::vector<Output> outputs_;
};

}  // namespace poseidon
