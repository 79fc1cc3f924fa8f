// The nets of the golden solvers, in text format.
#pragma once

#include <string>

namespace poseidon {

// Two InnerProduct layers, whose biases have a rate and a decay of their own.
std::string SmallNet();

// A small net like one of Caffe's: lenet, cifar10_quick, resnet, inception, autoencoder, siamese;
// or one of what else nets can have: segmentation, rules (for stage 'tanh' and 'small', level 2),
// embedding, recurrent, filter.
std::string TrainingNet(const std::string& name);

}  // namespace poseidon
