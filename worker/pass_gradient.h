// How the gradients of an iteration's passes become one, wherever they are.
//
//   factors    each pass fills rows of its own, one pass below the other: their product is the
//              passes' sum
//   dense      the first pass writes into the iteration's gradient, the others into `scratch`, as
//              large, which is then added
//
// The iteration's gradient is the mean over its passes.
#pragma once

#include <cstdint>
#include <span>

#include "core/arithmetic/gradient_buffers.h"
#include "worker/worker_net.h"

namespace poseidon {

// Where pass number `pass` writes a layer's gradient. `iteration` has the rows of `most_passes`
// passes, or is dense; scratch may be empty for the first pass.
inline GradientBuffers BuffersOfPass(const GradientBuffers& iteration, std::span<float> scratch,
                                     int64_t most_passes, int64_t pass) {
  if (iteration.dense.empty()) {
    const size_t u = iteration.u.size() / most_passes;
    const size_t v = iteration.v.size() / most_passes;
    return {{}, iteration.u.subspan(pass * u, u), iteration.v.subspan(pass * v, v)};
  }
  return {pass == 0 ? iteration.dense : scratch.first(iteration.dense.size()), {}, {}};
}

// Adds what the pass has left there to the iteration's gradient; with the last one this is
// complete. `arithmetic` works on floats where they are: AddInto(sum, addend),
// Scale(floats, factor), Clear(floats).
template <typename Arithmetic>
void AddPass(const GradientBuffers& iteration, std::span<const float> scratch, int64_t most_passes,
             const PassOfIteration& pass, Arithmetic&& arithmetic) {
  const float scale = 1.0F / static_cast<float>(pass.count);
  if (!iteration.dense.empty()) {
    if (pass.index > 0) arithmetic.AddInto(iteration.dense, scratch.first(iteration.dense.size()));
    if (pass.last()) arithmetic.Scale(iteration.dense, scale);
    return;
  }
  if (!pass.last()) return;
  const size_t used = iteration.u.size() / most_passes * pass.count;
  arithmetic.Scale(iteration.u.first(used), scale);
  // An iteration of more passes may have left something below.
  if (used < iteration.u.size()) arithmetic.Clear(iteration.u.subspan(used));
}

}  // namespace poseidon
