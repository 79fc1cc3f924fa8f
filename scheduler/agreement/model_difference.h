// How the models differ that two workers of a job have declared.
#pragma once

#include <string>

namespace poseidon {

// Of two serialized ModelSpecs, for people: the first layer that differs, "its layer 1 is "fc1" (5
// x 16, 5), the other's "fc1" (4 x 16, 4)", or how many layers each has, or what else is not the
// same.
std::string DescribeModelDifference(const std::string& model, const std::string& other);

}  // namespace poseidon
