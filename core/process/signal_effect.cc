#include "core/process/signal_effect.h"

namespace poseidon {

std::optional<SignalEffect> FindSignalEffect(const std::string& name) {
  for (const SignalEffect effect :
       {SignalEffect::kSnapshot, SignalEffect::kStop, SignalEffect::kNone, SignalEffect::kEnd}) {
    if (name == NameOf(effect)) return effect;
  }
  return std::nullopt;
}

const char* NameOf(SignalEffect effect) {
  switch (effect) {
    case SignalEffect::kSnapshot:
      return "snapshot";
    case SignalEffect::kStop:
      return "stop";
    case SignalEffect::kNone:
      return "none";
    case SignalEffect::kEnd:
      break;
  }
  return "end";
}

}  // namespace poseidon
