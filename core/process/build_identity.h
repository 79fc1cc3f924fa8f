// Of which build this program, or the library in it, is: what the nodes of a job must have in
// common. Thread-safe.
#pragma once

#include <string_view>

namespace poseidon {

// The version and a hash of all sources, also of those of the Python package:
//
//   BuildIdentity()  // "0.1.0+3f2a91c04be7"
//
// Two builds of the same sources have the same identity, whatever they are compiled with, and a
// library has that of the programs that were built with it. cmake/BuildIdentity.cmake makes it.
std::string_view BuildIdentity();

}  // namespace poseidon
