// Lists in one text, as flags and Caffe's `weights` have them.
#pragma once

#include <string>
#include <vector>

namespace poseidon {

// What stands between commas, without blanks around it and without what is empty. Pure;
// thread-safe.
std::vector<std::string> SplitAtCommas(const std::string& text);

}  // namespace poseidon
