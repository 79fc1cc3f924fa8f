// Writing golden files.
#pragma once

#include <caffe/caffe.hpp>
#include <string>

namespace poseidon {

// Runs every case of layer_cases.h and writes DIRECTORY/layers/TYPE.binaryproto.
void MakeLayerFiles(const std::string& directory);

// Trains every case of solver_cases.h and writes DIRECTORY/solvers/NAME.{prototxt,binaryproto}.
// `scratch` is a directory for databases.
void MakeSolverFiles(const std::string& directory, const std::string& scratch);

// Writes a message to a file; ends the program if it can't.
void WriteMessage(const google::protobuf::Message& message, const std::string& path);

}  // namespace poseidon
