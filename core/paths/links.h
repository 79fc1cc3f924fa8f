// Symbolic links that stay where what they lead to is written anew.
#pragma once

#include <optional>
#include <string>

namespace poseidon {

// What `path` leads to, be it there or not: `path` itself where it is no link. With a slash at the
// end if one of the links has it: no file can be made there. None where links lead to each other.
// Stateless.
//
//   BehindLinks("train_lmdb")  // "/disk/train_lmdb", which need not be there yet
std::optional<std::string> BehindLinks(const std::string& path);

}  // namespace poseidon
