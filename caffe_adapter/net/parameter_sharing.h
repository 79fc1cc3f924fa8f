// Parameters that layers share by name: Caffe's rules for ParamSpec.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "caffe_adapter/net/layer_types.h"
#include "caffe_adapter/net/net.h"

namespace poseidon {

// Follows a net's layers in forward order. The first layer with a parameter of a name owns it;
// others with that name use it. Where several of them say lr_mult or decay_mult, they must say the
// same, which then holds for all.
class ParameterSharing {
 public:
  // `net` gets each layer after Add and outlives this.
  explicit ParameterSharing(NetDescription& net) : net_(net) {}

  // Sets what the layer's param entries say of its parameters: multipliers and owners. Fails
  // (LayerInput::Fail) for more entries than parameters, shapes that do not fit and multipliers
  // that differ.
  void Add(const LayerInput& input, std::vector<ParameterDescription>& parameters);

 private:
  // What is known of a name.
  struct Shared {
    ParameterOwner owner;
    std::vector<ParameterOwner> users;  // besides the owner
    bool lr_mult_given;
    bool decay_mult_given;
  };

  void Share(const LayerInput& input, int index, Shared& shared,
             std::vector<ParameterDescription>& parameters);
  ParameterDescription& Described(const ParameterOwner& place,
                                  std::vector<ParameterDescription>& current);
  std::string Name(const LayerInput& input, const ParameterOwner& place) const;

  NetDescription& net_;
  std::map<std::string, Shared> shared_;  // by name
};

}  // namespace poseidon
