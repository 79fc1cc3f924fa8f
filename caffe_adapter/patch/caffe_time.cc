#include "caffe_adapter/patch/caffe_time.h"

#include <cstdio>
#include <string>
#include <vector>

namespace poseidon {
namespace {

// Milliseconds of what a callback before and one after enclose.
class LayerTimer {
 public:
  explicit LayerTimer(size_t layers) : milliseconds_(layers) {}

  template <typename Action>
  void Measure(size_t layer, Action action) {
    timer_.Start();
    action();
    milliseconds_[layer] += timer_.MicroSeconds() / 1000;  // milliseconds come whole
  }

  double mean(size_t layer, int iterations) const { return milliseconds_[layer] / iterations; }

 private:
  ::caffe::Timer timer_;
  std::vector<double> milliseconds_;
};

}  // namespace

void TimeNet(::caffe::Net<float>& net, int iterations) {
  net.Forward();
  net.Backward();
  const auto& layers = net.layers();
  LayerTimer forward(layers.size());
  LayerTimer backward(layers.size());
  for (int iteration = 0; iteration < iterations; ++iteration) {
    for (size_t i = 0; i < layers.size(); ++i) {
      forward.Measure(i, [&] { layers[i]->Forward(net.bottom_vecs()[i], net.top_vecs()[i]); });
    }
    for (size_t i = layers.size(); i-- > 0;) {
      backward.Measure(i, [&] {
        layers[i]->Backward(net.top_vecs()[i], net.bottom_need_backward()[i], net.bottom_vecs()[i]);
      });
    }
  }
  double forward_sum = 0;
  double backward_sum = 0;
  std::printf("%-30s %12s %12s\n", "layer", "forward ms", "backward ms");
  for (size_t i = 0; i < layers.size(); ++i) {
    const double there = forward.mean(i, iterations);
    const double back = backward.mean(i, iterations);
    forward_sum += there;
    backward_sum += back;
    std::printf("%-30s %12.3f %12.3f\n", net.layer_names()[i].c_str(), there, back);
  }
  std::printf("%-30s %12.3f %12.3f\n", "all", forward_sum, backward_sum);
}

}  // namespace poseidon
