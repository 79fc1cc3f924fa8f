// What is asked of Caffe's data layers: a table of layers. What they read is in inputs/ or made by
// data_inputs.h, by paths relative to the working directory.
#pragma once

#include <string>
#include <vector>

namespace poseidon {

struct DataCase {
  std::string type;
  std::string setting;  // what is special, in words
  std::string fields;   // the rest of the layer in text format, with its tops
  int batches = 1;      // in a row
  bool training = false;
};

std::vector<DataCase> DataCases();

// Layers that read one record of one image and crop or mirror it at random.
std::vector<DataCase> RandomDataCases();

// WindowData layers, whose windows Caffe draws at random.
std::vector<DataCase> WindowCases();

// DummyData layers with one blob that a filler fills with random numbers.
std::vector<DataCase> FillerCases();

}  // namespace poseidon
