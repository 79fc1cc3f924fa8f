// Measuring a net's layers, as `caffe time` does.
#pragma once

#include <caffe/caffe.hpp>

namespace poseidon {

// Runs the net once, then forward and backward `iterations` times, and prints the mean milliseconds
// of each layer and of the whole.
void TimeNet(::caffe::Net<float>& net, int iterations);

}  // namespace poseidon
