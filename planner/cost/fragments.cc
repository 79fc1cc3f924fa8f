#include "planner/cost/fragments.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "proto/model_size.h"

namespace poseidon {

std::vector<int> FragmentOfLayer(const ModelSpec& model, int fragments) {
  std::vector<int64_t> floats;
  for (const LayerSpec& layer : model.layers()) floats.push_back(FloatCount(layer));
  std::vector<int> order(floats.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return floats[a] > floats[b]; });
  std::vector<int64_t> loads(fragments);
  std::vector<int> fragment_of(floats.size());
  for (const int layer : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    *least += floats[layer];
    fragment_of[layer] = static_cast<int>(least - loads.begin());
  }
  return fragment_of;
}

int StepOfFragment(const Communication& communication, int fragment) {
  const int64_t steps = communication.local_steps();  // their product can be more than an int
  return static_cast<int>((fragment + 1) * steps / communication.fragments());
}

}  // namespace poseidon
