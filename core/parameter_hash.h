// ParameterHash: one number for all parameters of a model. Workers that report the same one hold
// the same bits.
//
//   ParameterHash hash;
//   for (int layer = 0; layer < layers; ++layer) hash.Add(values(layer));
//   report.set_parameter_hash(hash.ToString());
//
// Not thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>

struct XXH3_state_s;

namespace poseidon {

class ParameterHash {
 public:
  ParameterHash();

  // The next layer's parameters, in the model's order; how they are cut does not matter.
  void Add(std::span<const float> values);
  // XXH3-128 of all bytes added, in hexadecimal.
  std::string ToString() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace poseidon
