// `poseidon status`: what a job does, in a terminal or as a page in a file.
#pragma once

#include "core/error.h"

namespace poseidon {

ExitCode StatusVerb();

}  // namespace poseidon
