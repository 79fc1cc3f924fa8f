// Rewound: thrown by a session's call when the job has lost a node, or has taken one in, and goes
// on from an iteration that this program has left. What the program has computed since then counts
// for nothing.
//
//   while (session.iteration() < 500) {
//     try {
//       ... an iteration, computed from session.iteration() and session.values() alone ...
//     } catch (const poseidon::Rewound&) {
//       session.GoBack();  // waits until the job goes on; iteration() and the values are as then
//     }
//   }
#pragma once

#include <exception>

namespace poseidon {

class Rewound : public std::exception {
 public:
  // For programs that do not catch it.
  const char* what() const noexcept override {
    return "the job goes back to an earlier iteration; the program has to call GoBack";
  }
};

}  // namespace poseidon
