#include "caffe_adapter/net/parameter_sharing.h"

namespace poseidon {
namespace {

std::string Field(int index, const std::string& name) {
  return "param." + std::to_string(index) + "." + name;
}

// The multiplier that a user of a shared parameter gives, if any, must be the others'.
void CheckMultiplier(const LayerInput& input, int index, const std::string& name, bool given,
                     float value, bool given_before, float before, const std::string& owner) {
  if (!given || !given_before || value == before) return;
  input.Fail(Field(index, name), "parameter \"" + input.layer.param(index).name() + "\" has " +
                                     name + " " + std::to_string(value) + ", but " +
                                     std::to_string(before) + " in " + owner +
                                     ", which it is shared with");
}

}  // namespace

ParameterDescription& ParameterSharing::Described(const ParameterOwner& place,
                                                  std::vector<ParameterDescription>& current) {
  const bool is_current = place.layer == static_cast<int>(net_.layers.size());
  return is_current ? current[place.blob] : net_.layers[place.layer].parameters[place.blob];
}

std::string ParameterSharing::Name(const LayerInput& input, const ParameterOwner& place) const {
  const bool is_current = place.layer == static_cast<int>(net_.layers.size());
  return "layer \"" + (is_current ? input.layer.name() : net_.layers[place.layer].name()) + "\"";
}

void ParameterSharing::Add(const LayerInput& input, std::vector<ParameterDescription>& parameters) {
  const int given = input.layer.param_size();
  if (given > static_cast<int>(parameters.size())) {
    input.Fail("param." + std::to_string(parameters.size()),
               "has " + std::to_string(given) + " param entries, but only " +
                   std::to_string(parameters.size()) + " learnable blobs");
  }
  for (int i = 0; i < given; ++i) {
    const caffe::ParamSpec& spec = input.layer.param(i);
    parameters[i].lr_mult = spec.lr_mult();
    parameters[i].decay_mult = spec.decay_mult();
    if (spec.name().empty()) continue;
    const ParameterOwner place = {static_cast<int>(net_.layers.size()), i};
    const auto [found, is_first] =
        shared_.emplace(spec.name(), Shared{place, {}, spec.has_lr_mult(), spec.has_decay_mult()});
    if (!is_first) Share(input, i, found->second, parameters);
  }
}

void ParameterSharing::Share(const LayerInput& input, int index, Shared& shared,
                             std::vector<ParameterDescription>& parameters) {
  const caffe::ParamSpec& spec = input.layer.param(index);
  ParameterDescription& own = parameters[index];
  const ParameterDescription& first = Described(shared.owner, parameters);
  const std::string owner = Name(input, shared.owner);
  const bool permissive = spec.share_mode() == caffe::ParamSpec::PERMISSIVE;
  if (permissive ? Count(own.shape) != Count(first.shape) : own.shape != first.shape) {
    input.Fail(Field(index, "name"), "parameter \"" + spec.name() + "\" is " + ToString(own.shape) +
                                         ", but " + ToString(first.shape) + " in " + owner +
                                         ", which it is shared with; expected " +
                                         (permissive ? "as many values" : "the same shape"));
  }
  CheckMultiplier(input, index, "lr_mult", spec.has_lr_mult(), own.lr_mult, shared.lr_mult_given,
                  first.lr_mult, owner);
  CheckMultiplier(input, index, "decay_mult", spec.has_decay_mult(), own.decay_mult,
                  shared.decay_mult_given, first.decay_mult, owner);
  const float lr_mult = spec.has_lr_mult() ? own.lr_mult : first.lr_mult;
  const float decay_mult = spec.has_decay_mult() ? own.decay_mult : first.decay_mult;
  shared.lr_mult_given |= spec.has_lr_mult();
  shared.decay_mult_given |= spec.has_decay_mult();

  own.owner = shared.owner;
  shared.users.push_back({static_cast<int>(net_.layers.size()), index});
  std::vector<ParameterOwner> all = shared.users;
  all.push_back(shared.owner);
  for (const ParameterOwner& place : all) {
    ParameterDescription& parameter = Described(place, parameters);
    parameter.shared = true;
    parameter.lr_mult = lr_mult;
    parameter.decay_mult = decay_mult;
  }
}

}  // namespace poseidon
