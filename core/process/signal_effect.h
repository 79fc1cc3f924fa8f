// SignalEffect: what a signal that ends programs does to a training. Names and meanings of the
// first three are those of Caffe's --sigint_effect and --sighup_effect.
#pragma once

#include <string>

namespace poseidon {

enum class SignalEffect {
  kSnapshot,  // a snapshot is written, and training goes on
  kStop,      // training ends after an iteration, with the snapshot of its end
  kNone,      // nothing
  kEnd,       // the program ends at once
};

// By signal; SIGTERM always has kEnd.
struct SignalEffects {
  SignalEffect sigint = SignalEffect::kEnd;
  SignalEffect sighup = SignalEffect::kEnd;
};

// "snapshot", "stop", "none" or "end". Throws ConfigError that names `flag`, "sigint_effect", for
// other text.
SignalEffect ParseSignalEffect(const std::string& flag, const std::string& text);
// The same text.
const char* NameOf(SignalEffect effect);

}  // namespace poseidon
