// Writing golden files.
#pragma once

#include <caffe/caffe.hpp>
#include <string>

namespace poseidon {

// Runs every case of layer_cases.h and writes DIRECTORY/layers/TYPE.binaryproto; of its random
// cases, DIRECTORY/random/TYPE.binaryproto.
void MakeLayerFiles(const std::string& directory);

// Trains every case of solver_cases.h and writes DIRECTORY/solvers/NAME.{prototxt,binaryproto}.
// `scratch` is a directory for databases.
void MakeSolverFiles(const std::string& directory, const std::string& scratch);

// Writes DIRECTORY/data/inputs, what data layers read that can't be made the same everywhere:
// images and HDF5 files, with the lists that name them.
void MakeInputFiles(const std::string& directory);

// Makes those, runs every case of data_cases.h and writes DIRECTORY/data/TYPE.binaryproto and
// DIRECTORY/random/TYPE.binaryproto. `scratch` is a directory for inputs.
void MakeDataFiles(const std::string& directory, const std::string& scratch);

// Reads each net DIRECTORY/upgrade/NAME.prototxt, which Caffe upgrades then, and writes it to
// NAME.binaryproto.
void MakeUpgradeFiles(const std::string& directory);

// Writes a message to a file; ends the program if it can't.
void WriteMessage(const google::protobuf::Message& message, const std::string& path);

}  // namespace poseidon
