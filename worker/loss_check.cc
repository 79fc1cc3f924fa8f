#include "worker/loss_check.h"

#include "core/error.h"

namespace poseidon {

void ThrowLossNotFinite(int rank, int64_t iteration, float loss, const std::string& layer,
                        const std::string& advice) {
  throw Error(ExitCode::kFailure,
              "the loss of worker " + std::to_string(rank) + " is " + std::to_string(loss) +
                  " in iteration " + std::to_string(iteration) +
                  (layer.empty() ? "" : "; the first layer with such numbers is " + layer) + "; " +
                  advice);
}

}  // namespace poseidon
