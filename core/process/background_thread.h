// What a daemon does beside the training, as answering a browser or searching for a better plan,
// must not take processor time from those who train.
#pragma once

namespace poseidon {

// The calling thread, and those that it starts from now on, run behind all others of this machine
// that are not so (nice 10: about a tenth of what another thread gets where both want a core). For
// good: raising it again takes rights.
//
//   std::thread thread([] {
//     RunInBackground();
//     ...
//   });
void RunInBackground();

}  // namespace poseidon
