// What well-known forks of Caffe have that BVLC's does not: so that a net written for one is told
// which it is, not just that a word is unknown.
#pragma once

#include <string>
#include <string_view>

namespace poseidon {

// "SSD's fork of Caffe has it", for a layer type or a field of LayerParameter or of another of
// Caffe's messages; with what to write instead where BVLC's Caffe has the same. Empty for a name
// that no fork known here has.
//
//   NoteOnForkLayer("PriorBox")  ->  "SSD's fork of Caffe has it"
std::string NoteOnForkLayer(std::string_view type);
std::string NoteOnForkField(std::string_view message, std::string_view field);

}  // namespace poseidon
