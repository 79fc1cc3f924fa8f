#include "worker/torch/layers/torch_product.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <optional>

#ifdef POSEIDON_ONEDNN
#include <dnnl.h>
#endif

namespace poseidon {
namespace {

#ifdef POSEIDON_ONEDNN

// How a matrix lies in memory: as rows, or as the columns of its transpose.
struct Layout {
  char transposed;  // in BLAS's letters
  int64_t stride;   // from a row, or column, to the next
};

std::optional<Layout> LayoutOf(const at::Tensor& matrix) {
  if (!matrix.is_cpu() || matrix.scalar_type() != at::kFloat) return std::nullopt;
  // A matrix of one row or column has any stride there.
  const int64_t rows = matrix.size(0);
  const int64_t columns = matrix.size(1);
  const int64_t row_stride = matrix.stride(0);
  const int64_t column_stride = matrix.stride(1);
  if ((column_stride == 1 || columns == 1) && (row_stride >= columns || rows == 1)) {
    return Layout{'N', rows == 1 ? columns : row_stride};
  }
  if ((row_stride == 1 || rows == 1) && (column_stride >= rows || columns == 1)) {
    return Layout{'T', columns == 1 ? rows : column_stride};
  }
  return std::nullopt;
}

// The product, which lies as rows. False if it is not done.
bool MultiplyByOneDnn(const at::Tensor& left, const at::Tensor& right, bool add,
                      const at::Tensor& product) {
  const std::optional<Layout> a = LayoutOf(left);
  const std::optional<Layout> b = LayoutOf(right);
  const std::optional<Layout> c = LayoutOf(product);
  if (!a || !b || !c || c->transposed != 'N' || product.numel() == 0 || left.size(1) == 0) {
    return false;
  }
  return dnnl_sgemm(a->transposed, b->transposed, left.size(0), right.size(1), left.size(1), 1.0F,
                    left.data_ptr<float>(), a->stride, right.data_ptr<float>(), b->stride,
                    add ? 1.0F : 0.0F, product.data_ptr<float>(), c->stride) == dnnl_success;
}

#endif

}  // namespace

void Multiply(const at::Tensor& left, const at::Tensor& right, bool add,
              const at::Tensor& product) {
#ifdef POSEIDON_ONEDNN
  if (MultiplyByOneDnn(left, right, add, product) ||
      MultiplyByOneDnn(right.t(), left.t(), add, product.t())) {
    return;
  }
#endif
  at::Tensor out = product;
  add ? at::addmm_out(out, out, left, right) : at::mm_out(out, left, right);
}

}  // namespace poseidon
