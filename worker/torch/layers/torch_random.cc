#include "worker/torch/layers/torch_random.h"

#include <ATen/Context.h>

#include "core/random.h"

namespace poseidon {

at::Generator MakeGenerator(const at::Tensor& like, uint64_t seed, int64_t iteration) {
  at::Generator generator = at::globalContext().defaultGenerator(like.device()).clone();
  generator.set_current_seed(DeriveSeed(seed, static_cast<uint64_t>(iteration)));
  return generator;
}

}  // namespace poseidon
