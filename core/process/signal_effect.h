// SignalEffect: what a signal that ends programs does to a training. Names and meanings of the
// first three are those of Caffe's --sigint_effect and --sighup_effect.
#pragma once

#include <optional>
#include <string>

namespace poseidon {

enum class SignalEffect {
  kSnapshot,  // a snapshot is written, and training goes on
  kStop,      // training ends after an iteration, with the snapshot of its end
  kNone,      // nothing
  kEnd,       // the program ends at once
};

// By signal.
struct SignalEffects {
  SignalEffect sigint = SignalEffect::kEnd;
  SignalEffect sighup = SignalEffect::kEnd;
  SignalEffect sigterm = SignalEffect::kEnd;
};

// Of "snapshot", "stop", "none" and "end"; nullopt for other text.
std::optional<SignalEffect> FindSignalEffect(const std::string& name);
// The same text.
const char* NameOf(SignalEffect effect);

}  // namespace poseidon
