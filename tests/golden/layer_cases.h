// What is asked of Caffe's layers: a table of layers, each with what is at its bottoms.
#pragma once

#include <string>
#include <vector>

namespace poseidon {

// What a blob's random values are.
enum class Values {
  kNoise,          // uniform in (-2, 2)
  kPositive,       // uniform in (0.1, 2)
  kNumbers,        // 0, 1, ... `bound` - 1, evenly: labels, indices
  kProbabilities,  // positive; along the second axis they sum up to 1
  kTies,           // -1, 0 or 1: equal ones, and where functions have kinks
  kFar,            // uniform in (-300, 300): exponentials overflow and vanish
};

struct GoldenBottom {
  std::vector<int> shape;
  Values values = Values::kNoise;
  int bound = 0;
  bool gradient = true;  // whether Caffe is asked for the gradient
};

struct GoldenCase {
  std::string type;
  std::string setting;     // what is special, in words
  std::string parameters;  // the rest of the layer in text format; one top if it names none
  std::vector<GoldenBottom> bottoms;
  bool testing = false;  // phase TEST
  bool zeros = false;    // the parameters are zero instead of random
};

std::vector<GoldenCase> GoldenCases();

// Layers that draw random numbers, which ours draws otherwise.
std::vector<GoldenCase> RandomGoldenCases();

}  // namespace poseidon
