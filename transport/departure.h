// Departure: hears when envelopes have left their node, for those who draw timelines.
#pragma once

#include "core/time.h"

namespace poseidon {

// Envelopes of a sending share one (Envelope::departure), which is destroyed when none of them is
// left in the node.
class Departure {
 public:
  Departure() = default;
  virtual ~Departure() = default;
  Departure(const Departure&) = delete;
  Departure& operator=(const Departure&) = delete;

  // An envelope's last byte is the kernel's at `when`; in virtual time, it has left the machine
  // then, and `when` may be ahead. Of an envelope that is thrown away this may be told, too.
  // Thread-safe: ZeroMQ's I/O threads call it.
  virtual void Left(Time when) = 0;
};

}  // namespace poseidon
