#include "core/process/signal_effect.h"

#include "core/error.h"

namespace poseidon {

SignalEffect ParseSignalEffect(const std::string& flag, const std::string& text) {
  for (const SignalEffect effect :
       {SignalEffect::kSnapshot, SignalEffect::kStop, SignalEffect::kNone, SignalEffect::kEnd}) {
    if (text == NameOf(effect)) return effect;
  }
  throw ConfigError("--" + flag + " is \"" + text + "\"; it must be snapshot, stop, none or end");
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
