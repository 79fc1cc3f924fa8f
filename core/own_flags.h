// The command line of a program whose flags are gflags': the daemons and the benchmarks.
#pragma once

#include <string>

namespace poseidon {

// Reads the flags and takes them off the command line; a wrong one ends the program with 1, as
// gflags does. --help shows `usage` and the flags that `file` defines, not those of every library
// that the program is linked with, which --helpfull shows. From now on SIGINT, SIGTERM and SIGHUP
// end the program with kInterrupted (core/program.h), so this is the first thing that main does.
//
//   int main(int argc, char** argv) {
//     poseidon::ReadOwnFlags("Does this and that.\n\n  mine --config=FILE", __FILE__, &argc,
//     &argv);
void ReadOwnFlags(const std::string& usage, const std::string& file, int* argc, char*** argv);

}  // namespace poseidon
