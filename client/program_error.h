// What ends a call of the front door (include/poseidon) where the program's own code throws: the
// other nodes hear of it as of any error.
#pragma once

#include "core/error.h"

namespace poseidon {

// What is being handled, in a catch block: the Error, another std::exception as one with kFailure,
// or the sentence that the program's own code, in `interrupted` or a solver, has thrown what is no
// exception.
Error HandledError();

}  // namespace poseidon
