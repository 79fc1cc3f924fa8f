#include <cublas_v2.h>
#include <glog/logging.h>

#include "device/cuda/check.h"
#include "device/cuda/rebuild.h"
#include "device/cuda/update.h"

namespace poseidon::cuda {
namespace {

void CheckBlas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ExitCode::kFailure,
              std::string("cuBLAS can't ") + what + ": " + cublasGetStatusString(status));
}

// A thread a column; row by row as on the host, so with its bits.
__global__ void ColumnSumsKernel(const float* u, int64_t rows, int64_t columns, float* sums) {
  const int64_t column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float sum = 0;
  for (int64_t row = 0; row < rows; ++row) sum += u[row * columns + column];
  sums[column] = sum;
}

}  // namespace

struct GradientRebuilder::Handle {
  cublasHandle_t blas = nullptr;
  Handle() { CheckBlas(cublasCreate(&blas), "be used"); }
  ~Handle() { cublasDestroy(blas); }
};

GradientRebuilder::GradientRebuilder() : handle_(std::make_unique<Handle>()) {}
GradientRebuilder::~GradientRebuilder() = default;

void GradientRebuilder::Rebuild(int64_t outputs, int64_t inputs, std::span<const float> u,
                                std::span<const float> v, std::span<float> gradient,
                                CudaStream stream) {
  const int64_t rows = static_cast<int64_t>(u.size()) / outputs;
  const int64_t weights = outputs * inputs;
  CHECK_EQ(static_cast<int64_t>(v.size()), rows * inputs);
  CHECK_GE(static_cast<int64_t>(gradient.size()), weights);
  // cuBLAS counts by columns, so each row-major matrix is its own transpose: (u^T v)^T = v^T u.
  const float one = 1, zero = 0;
  CheckBlas(cublasSetStream(handle_->blas, stream), "use the stream");
  CheckBlas(cublasSgemm(handle_->blas, CUBLAS_OP_N, CUBLAS_OP_T, static_cast<int>(inputs),
                        static_cast<int>(outputs), static_cast<int>(rows), &one, v.data(),
                        static_cast<int>(inputs), u.data(), static_cast<int>(outputs), &zero,
                        gradient.data(), static_cast<int>(inputs)),
            "multiply factors");
  if (static_cast<int64_t>(gradient.size()) == weights) return;
  ColumnSumsKernel<<<BlocksFor(outputs), kBlockThreads, 0, stream>>>(u.data(), rows, outputs,
                                                                     gradient.data() + weights);
  CheckLaunch("ColumnSumsKernel");
}

void GradientRebuilder::RebuildAndUpdate(const ProductUpdate& layer, int64_t iteration,
                                         const FactorUpdate::Memory& memory, CudaStream stream) {
  Rebuild(layer.outputs, layer.inputs, memory.u, memory.v, memory.gradient, stream);
  const size_t weights = static_cast<size_t>(layer.outputs * layer.inputs);
  const size_t state = static_cast<size_t>(OptimizerStatePerParameter(*layer.rule));
  const auto update = [&](const Multipliers& multipliers, size_t begin, size_t size) {
    Update({*layer.rule, iteration, multipliers, layer.gradient_scale},
           memory.gradient.subspan(begin, size), memory.parameters.subspan(begin, size),
           memory.optimizer_state.subspan(begin * state, size * state), stream);
  };
  update(layer.weights, 0, weights);
  if (memory.parameters.size() > weights) {
    update(layer.bias, weights, memory.parameters.size() - weights);
  }
}

}  // namespace poseidon::cuda
