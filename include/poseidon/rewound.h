// Rewound: thrown by a session's call when the job has lost a node, or has taken one in, and goes
// on from an iteration that this program has left. What the program has computed since then counts
// for nothing.
//
// The program of poseidon/session.h, in a job with `recovery { mode: REPLACE }`. All calls from
// Begin to Finish may throw it:
//
//   #include <poseidon/session.h>
//
//   // Computes from iteration(), rank() and values() alone.
//   void RunIteration(poseidon::Session& session) {
//     session.WaitFresh(0);
//     const float x = static_cast<float>((session.iteration() + session.rank()) % 3) - 1;
//     const float error = session.values(0)[0] * x + session.values(0)[1] - (2 * x + 1);
//     session.gradient(0).dense[0] = error * x;
//     session.gradient(0).dense[1] = error;
//     session.GradientReady(0);
//     session.EndIteration({.loss = error * error});
//   }
//
//   int main() {
//     poseidon::SessionOptions options = poseidon::SessionOptions::FromEnvironment();
//     options.goes_back = true;
//     poseidon::Session session(options);
//     session.Declare({.layers = {{.name = "line", .blobs = {{.shape = {2}}}}},
//                      .optimizer = {.base_lr = 0.1F},
//                      .iterations = 500});
//     bool begun = false;
//     while (true) {
//       try {
//         begun ? session.GoBack() : session.Begin();  // GoBack waits until the job goes on
//         while (session.iteration() < 500) RunIteration(session);
//         session.Finish();
//         return 0;
//       } catch (const poseidon::Rewound&) {
//         begun = true;  // iteration() and the values are others when GoBack returns
//       }
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
